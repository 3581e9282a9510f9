"""What kind of model it is, and which class loads it."""

from __future__ import annotations

import json
from typing import Any

import transformers
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from chat.engine.source import Source
from chat.engine.weights import read_gguf_header
from chat.types import ModelLoadError, ModelNotFound


def read_config(source: Source, trust_remote_code: bool) -> PreTrainedConfig:
    """Read the model's config. Raises: ModelLoadError that names the architecture if it is unknown or brings code."""
    if source.gguf:
        return _read_gguf_config(source)
    file = source.folder / "config.json"
    if not file.is_file():
        raise ModelNotFound(f"{source.folder} holds no model: it has no config.json. Check --model.")
    fields = json.loads(file.read_text("utf-8"))
    kind = fields.get("model_type")
    if kind not in CONFIG_MAPPING and not trust_remote_code:
        raise ModelLoadError(_explain_unknown(source.name, kind, brings_code="auto_map" in fields))
    config: PreTrainedConfig = AutoConfig.from_pretrained(source.folder, trust_remote_code=trust_remote_code)
    return config


def _read_gguf_config(source: Source) -> PreTrainedConfig:
    kind = read_gguf_header(source.folder / str(source.gguf)).architecture
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(source.folder, gguf_file=source.gguf)
    except (ValueError, KeyError):
        raise ModelLoadError(
            f"{source.gguf} has the architecture {kind!r}, which transformers {transformers.__version__} cannot read "
            "from a GGUF file. Load the model's safetensors version instead."
        ) from None
    return config


def _explain_unknown(name: str, kind: str | None, brings_code: bool) -> str:
    if brings_code:
        return (
            f"{name} brings its own Python code for the architecture {kind!r}. "
            "If you trust its author, start with --trust-remote-code."
        )
    return (
        f"{name} has the architecture {kind!r}, which transformers {transformers.__version__} does not know. "
        "Update it with `pip install --upgrade transformers`, or choose another model."
    )


def choose_class(config: PreTrainedConfig) -> Any:
    """Return the auto class whose model writes text for `config`. Raises: ModelLoadError if none does."""
    own_code = getattr(config, "auto_map", None) or {}
    # Some encoder-decoders have a decoder-only class as well, which cannot read a prompt as they were trained to.
    order = _CLASSES if config.is_encoder_decoder else _CLASSES[1:]
    for kind, mapping in order:
        if type(config) in mapping or kind.__name__ in own_code:
            return kind
    raise ModelLoadError(f"A {config.model_type} model does not write text. Choose a model for text generation.")


_CLASSES: tuple[tuple[Any, Any], ...] = (
    (AutoModelForSeq2SeqLM, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING),
    (AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING),
    (AutoModelForImageTextToText, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING),
)
