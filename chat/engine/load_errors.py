"""What goes wrong while a model loads, in words that say what to do next."""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import Iterator
from errno import ENOSPC
from importlib.util import find_spec
from pathlib import Path

import torch
from huggingface_hub import errors as hub
from huggingface_hub import get_token

from chat.types import ChatError, ModelLoadError, ModelNotFound

logger = logging.getLogger(__name__)

_TOKEN = re.compile(r"hf_\w+")
_TOKENIZER_PACKAGES = (("*.model", "sentencepiece"), ("*.tiktoken", "tiktoken"), ("tekken.json", "mistral-common"))
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.*",
    "*.gguf",
    *(p for p, _ in _TOKENIZER_PACKAGES),
)
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


def explain_load_failure(error: Exception, model: str) -> ChatError:
    """Return the ChatError to show for `error`, which happened while `model` was loaded.

    It holds no traceback, so no half-loaded weights stay alive through it, and no access token.
    """
    if isinstance(error, ChatError):
        return error.with_traceback(None)
    for cause in _causes(error):
        known = _explain_hub(cause, model) or _explain_system(cause, model)
        if known:
            return known
    logger.error("%s could not be loaded", model, exc_info=error)
    return ModelLoadError(f"{model} could not be loaded. {type(error).__name__}: {_shorten(str(error))}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error` and what led to it, as libraries wrap the telling error into vague ones."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _shorten(text: str) -> str:
    lines = [line.strip() for line in _TOKEN.sub("hf_***", text).splitlines() if line.strip()]
    return " ".join(lines)[:400] or "no further details"


def _explain_hub(error: BaseException, model: str) -> ChatError | None:
    if isinstance(error, hub.GatedRepoError):
        return ModelLoadError(_explain_gate(model))
    if isinstance(error, hub.RepositoryNotFoundError):
        return ModelNotFound(_explain_not_found(model))
    if isinstance(error, hub.RevisionNotFoundError):
        return ModelNotFound(f"{model} has no such branch, tag or commit. Check --revision.")
    if isinstance(error, hub.HFValidationError):
        return ModelNotFound(f"{model} is neither a folder here nor a hub id. Check --model; an id is owner/name.")
    if isinstance(error, hub.HfHubHTTPError):
        return ModelLoadError(_explain_status(error.response.status_code, model))
    if _is_network(error):
        return ModelLoadError(
            f"The hub cannot be reached, and {model} is not whole in the cache of this machine. Check the network (and "
            "HF_HUB_OFFLINE), name a folder with --model, or leave --model out for the small default model."
        )
    return None


def _explain_gate(model: str) -> str:
    page = f"its page, https://huggingface.co/{model}"
    if get_token():
        return f"Your account has no access to {model} yet. Ask for it on {page}, and start again when it is granted."
    return f"{model} is only for people who accepted its terms. Accept them on {page}, then {_LOGIN}, and start again."


def _explain_not_found(model: str) -> str:
    if get_token():
        return (
            f"The hub has no model {model} that your account can see. "
            "Check the spelling of --model, or ask its owner for access."
        )
    return f"The hub has no public model {model}. Check the spelling of --model; if it is private, {_LOGIN}."


def _explain_status(status: int, model: str) -> str:
    if status in (401, 403):
        return f"The hub refused your access token for {model}. It may have expired: {_LOGIN}, and start again."
    if status == 429:
        return f"The hub takes no more requests from here for now. Wait a few minutes, or {_LOGIN}."
    return f"The hub answered with status {status} for {model}. Try again in a few minutes."


def _is_network(error: BaseException) -> bool:
    offline = (hub.RevisionResolutionError, hub.LocalEntryNotFoundError, hub.OfflineModeIsEnabled, ConnectionError)
    # The HTTP library's own errors; which one it is depends on the version of the hub client.
    return isinstance(error, offline) or type(error).__module__.startswith("httpx")


def _explain_system(error: BaseException, model: str) -> ChatError | None:
    text = str(error)
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and ("out of memory" in text or "not enough memory" in text)
    ):
        return ModelLoadError(
            f"There is not enough memory for {model}. Close other programs, choose a smaller or quantized model, "
            "or try --device cpu."
        )
    if isinstance(error, OSError) and error.errno == ENOSPC:
        return ModelLoadError(f"The disk is full{_at(error)}. Free some space and start again.")
    if isinstance(error, PermissionError):
        return ModelLoadError(f"There is no permission to read or write{_at(error)}. Change it and start again.")
    if isinstance(error, ImportError):
        return ModelLoadError(f"{model} needs a package that is missing. {_shorten(text)}")
    return None


def _at(error: OSError) -> str:
    return f" at {error.filename}" if error.filename else ""


def explain_tokenizer_failure(folder: Path) -> ModelLoadError | None:
    """Return what the tokenizer in `folder`, which failed to load, lacks; None if it lacks nothing.

    Libraries blame one package for another, or for a missing file, so what is really there decides.
    """
    names = [file.name for file in folder.iterdir()]
    for pattern, package in _TOKENIZER_PACKAGES:
        files = fnmatch.filter(names, pattern)
        if files and find_spec(package.replace("-", "_")) is None:
            return ModelLoadError(f"The package {package} is needed to read {files[0]}. Run: pip install {package}")
    if not any(fnmatch.filter(names, pattern) for pattern in _TOKENIZER_FILES):
        return ModelLoadError(
            f"{folder} holds no tokenizer. Copy the tokenizer's files there from the model it was trained from."
        )
    return None


def require(package: str, purpose: str) -> None:
    """Check that `package` is installed. Raises: ModelLoadError that names it."""
    if find_spec(package) is None:
        raise ModelLoadError(f"The package {package} is needed {purpose}. Run: pip install {package}")
