"""The settings of a visitor: a field for the system prompt, and one for each thing that can be set of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from chat.settings import Settings
from chat.types import GenerationParams, ModelInfo, parse_params

LABELS = {
    "max_new_tokens": "Max tokens",
    "temperature": "Temperature",
    "top_p": "Top p",
    "top_k": "Top k",
    "repetition_penalty": "Repetition penalty",
    "seed": "Seed",
}
"""The generation params that have a field, in the fields' order, behind the system prompt."""


def create_panel(settings: Settings) -> list[gr.Textbox]:
    """Create the fields; those of the generation params stay closed until the model is there."""
    gr.HTML("<h2>Settings</h2>")
    system_prompt = gr.Textbox(settings.system_prompt, label="System prompt", lines=3, max_lines=12, interactive=True)
    return [system_prompt, *(_create_field(name, label) for name, label in LABELS.items())]


def fill_panel(info: ModelInfo) -> list[Any]:
    """Return updates that open the generation params' fields, with the model's defaults in them."""
    values = (getattr(info.defaults, name) for name in LABELS)
    return [gr.update(value="" if value is None else str(value), interactive=True) for value in values]


def skip_panel() -> list[Any]:
    """Return updates that leave the generation params' fields as they are."""
    return [gr.skip()] * len(LABELS)


def read_panel(values: Sequence[str]) -> tuple[str, GenerationParams]:
    """Return the system prompt and the params; an empty field takes the model's own. Raises: InvalidRequest."""
    system_prompt, *fields = values
    return system_prompt, parse_params(**{n: v.strip() or None for n, v in zip(LABELS, fields, strict=True)})


def _create_field(name: str, label: str) -> gr.Textbox:
    # Not a gr.Number: an empty one turns into 0 when the page opens.
    return gr.Textbox(
        label=label,
        info=GenerationParams.model_fields[name].description,
        placeholder="random" if name == "seed" else "the model's own",
        max_lines=1,
        interactive=False,
    )
