"""What an engine does, and what a reply cost, in words."""

from __future__ import annotations

from chat.types import ModelInfo, Progress, Usage


def model_caption(info: ModelInfo) -> str:
    """Name the model, its device and its window."""
    parts = [info.name, f"{info.device} {info.dtype}".strip()]
    if info.window:
        parts.append(f"window {info.window:,} tokens")
    if info.is_base:
        parts.append("base model")
    return " · ".join(parts)


def progress_caption(progress: Progress | None) -> str:
    """Say what the engine does while there is no text yet."""
    if progress is None:
        return "Waiting"
    if progress.kind == "queued" and progress.text:
        return progress.text
    if progress.kind == "queued":
        return "Waiting: next in line" if progress.done <= 1 else f"Waiting: number {progress.done:,} in line"
    if progress.kind == "reading":
        return f"Reading {progress.done:,} of {progress.total:,} tokens"
    share = f" {progress.done / progress.total:.0%}" if progress.total else ""
    return f"{progress.text or 'Loading the model'}{share}"


def usage_caption(usage: Usage, window: int) -> str:
    """Say how fast a reply came and how much of the window is used. One that came in one piece has no speed."""
    tokens, read = usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens
    parts = [
        f"{tokens:,} token{'s' * (tokens != 1)}",
        f"first after {usage.first_token_s:.1f} s",
        f"context {read:,} of {window:,}" if window else f"context {read:,}",
    ]
    return " · ".join([f"{usage.tokens_per_s:,.1f} tokens/s", *parts] if usage.tokens_per_s else parts)


def stopped_caption(seconds: float) -> str:
    """Say that a reply was stopped. What it cost is known to nobody by then."""
    return f"Stopped after {seconds:.1f} s"


def left_out_caption(count: int) -> str:
    """Say that the oldest messages did not fit."""
    return (
        f"The {count:,} oldest messages no longer fit and were left out."
        if count > 1
        else ("The oldest message no longer fits and was left out.")
    )
