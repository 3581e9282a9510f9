"""What goes wrong while generating, in words that say what to do next."""

from __future__ import annotations

import torch

from chat.types import ChatError, GenerationFailed, OutOfMemory


class InvalidScores(GenerationFailed):
    """The model's scores are not numbers any more."""

    def __init__(self) -> None:
        super().__init__(
            "The model computed invalid numbers (NaN or infinity), so the reply ends here. "
            "Try again, or start with --dtype float32 or bfloat16."
        )


class DeviceLost(GenerationFailed):
    """The device refuses all further work in this process."""

    def __init__(self) -> None:
        super().__init__("The graphics device has failed and stays unusable. Restart the app.")


def explain_failure(error: Exception) -> ChatError:
    """Return the ChatError to show for `error`; it holds no traceback, so no tensor stays alive through it."""
    text = str(error)
    if isinstance(error, ChatError):
        return error.with_traceback(None)
    # The CPU's allocator and MPS raise a plain RuntimeError.
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)
    ):
        return OutOfMemory(
            "There is not enough memory for this request. Send a shorter message, "
            "start a new conversation, or lower the longest reply."
        )
    if "device-side assert" in text or "CUDA error" in text:
        return DeviceLost()
    if "probability tensor contains" in text:
        return InvalidScores()
    return GenerationFailed(f"The model failed: {type(error).__name__}: {text or 'no further details'}. Try again.")
