"""A server's list of models, whose entries differ from server to server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chat.types import ModelNotFound

_WINDOW_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
_SHOWN = 8


def choose_model(entries: Sequence[Mapping[str, Any]], host: str) -> str:
    """Return the name of the only model. Raises: ModelNotFound if there is not exactly one."""
    names = [str(entry.get("id")) for entry in entries]
    if len(names) == 1:
        return names[0]
    if not names:
        raise ModelNotFound(f"{host} lists no models. Name one with --model.")
    more = ", ..." if len(names) > _SHOWN else ""
    raise ModelNotFound(f"{host} has several models. Name one with --model: {', '.join(names[:_SHOWN])}{more}")


def find_window(entries: Sequence[Mapping[str, Any]], name: str) -> int:
    """Return the model's window in tokens, 0 if the list does not tell.

    vLLM, SGLang and others write it beside the name, llama.cpp into `meta`, the hub's router beside each
    provider, of which the smallest counts, because the router chooses.
    """
    # The hub's router lists a model without the provider that may follow its name.
    ids = (name, name.partition(":")[0])
    entry = next((entry for entry in entries if entry.get("id") in ids), {})
    places = [entry, entry.get("meta"), *(entry.get("providers") or ())]
    windows = [place.get(field) for place in places if isinstance(place, dict) for field in _WINDOW_FIELDS]
    return min((window for window in windows if isinstance(window, int) and window > 0), default=0)
