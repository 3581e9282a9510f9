"""What a Hugging Face Space tells the app that runs on it.

Source: https://huggingface.co/docs/hub/spaces-overview#helper-environment-variables
"""

from __future__ import annotations

import os


def on_space() -> bool:
    """Tell whether the app runs on a Space."""
    return bool(os.environ.get("SPACE_ID"))


def on_zerogpu() -> bool:
    """Tell whether a GPU is there only for one call at a time; read as the `spaces` package reads it."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
