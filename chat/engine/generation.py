"""What a model says of how to generate with it: its end tokens, its sampling defaults, its window."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import ValidationError
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from chat.types import GenerationParams

logger = logging.getLogger(__name__)

USUAL_PARAMS = GenerationParams(temperature=0.7, top_p=0.95)
"""For a model that says nothing of sampling."""

USUAL_WINDOW = 2048
"""For a model that says nothing of its window: small enough for the first models of this kind, too."""

_WINDOW_FIELDS = (
    "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length",
    "context_length",
)  # fmt: skip

_TEXT_ENDS = frozenset({"<|endoftext|>", "<|end_of_text|>"})
"""Ends of a whole text, which a chat model may write although its files name only the end of a turn."""

_KEPT_FIELDS = (
    "bos_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens",
    "begin_suppress_tokens", "bad_words_ids",
)  # fmt: skip
"""Fields of a generation config that say which tokens a model may write. How to search is the request's affair."""


def context_window(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the most tokens that prompt and reply may have together."""
    text = config.get_text_config()
    sizes = [getattr(text, name, None) for name in _WINDOW_FIELDS]
    known = next((size for size in sizes if isinstance(size, int) and size > 0), None)
    # A tokenizer that knows no limit says 10^30; a few tokens would be the limit of another task.
    limit = tokenizer.model_max_length if 128 <= tokenizer.model_max_length < 10**9 else None
    return int(min(size for size in (known, limit) if size) if known or limit else USUAL_WINDOW)


def read_defaults(config: GenerationConfig) -> GenerationParams:
    """Return the model's own sampling defaults over the usual ones; values that make no sense are left out."""
    names = ("temperature", "top_p", "top_k", "repetition_penalty")
    fields: dict[str, Any] = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    if config.do_sample is False:
        fields["temperature"] = 0.0
    stop = config.stop_strings or ()
    fields["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    try:
        own = GenerationParams(**fields)
    except ValidationError as error:
        wrong = {item["loc"][0] for item in error.errors()}
        own = GenerationParams(**{name: value for name, value in fields.items() if name not in wrong})
    return own.over(USUAL_PARAMS)


def settle_generation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Leave in the model's generation config only its tokens, with every end token, and the pad token set once.

    So generate has nothing to warn of, whatever a request asks for.
    """
    own = model.generation_config
    if (own.num_beams or 1) > 1:
        logger.warning("The model asks for %d beams, which cannot be streamed; using 1.", own.num_beams)
    ends = end_ids(own, tokenizer)
    pads = (own.pad_token_id, tokenizer.pad_token_id, *ends)
    model.generation_config = GenerationConfig(
        **{name: getattr(own, name) for name in _KEPT_FIELDS},
        eos_token_id=ends or None,
        pad_token_id=next((pad for pad in pads if isinstance(pad, int) and pad >= 0), None),
        use_cache=True,
    )


def end_ids(config: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens that end a reply: those that the model and the tokenizer name, and ends of a whole text."""
    own = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    added = tokenizer.added_tokens_decoder.items()
    texts = [id for id, token in added if token.special and str(token) in _TEXT_ENDS]
    ids = [*own, tokenizer.eos_token_id, *texts]
    return list(dict.fromkeys(id for id in ids if id is not None))
