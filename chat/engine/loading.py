"""Model and tokenizer from a hub id, a folder, a GGUF file, an adapter, or the small default."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.quantization_config import GgufConfig

from chat.engine.architecture import choose_class, read_config
from chat.engine.compiling import compile_step
from chat.engine.devices import choose_device, list_devices, place
from chat.engine.dtypes import choose_dtype, name_dtype
from chat.engine.generation import context_window, read_defaults, settle_generation
from chat.engine.load_errors import explain_load_failure, explain_tokenizer_failure
from chat.engine.progress import libraries_report
from chat.engine.quantizing import check_packed, packed_bytes, plan_quantization
from chat.engine.source import Source, find_source
from chat.engine.starting import Report
from chat.engine.template import read_shipped, shipped_names
from chat.engine.weights import count_bytes, find_weights
from chat.settings import EngineSettings
from chat.types import ModelInfo, ModelLoadError, Progress


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to generate, its tokenizer, and what is to be known of both."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    info: ModelInfo


def load_model(settings: EngineSettings, report: Report) -> LoadedModel:
    """Load what `settings.model` names, reporting progress. Raises: ModelLoadError."""
    try:
        with libraries_report(report):
            return _load(settings, report)
    except Exception as error:
        failure = explain_load_failure(error, settings.model or "The default model")
    # Raised out here, where the caught error, its frames, and the weights in them are gone.
    raise failure


def _load(settings: EngineSettings, report: Report) -> LoadedModel:
    source = find_source(settings.model, settings.revision, report)
    report(Progress("loading", text="Reading the tokenizer"))
    config = read_config(source.base or source, settings.trust_remote_code)
    tokenizer = load_tokenizer(source, settings)
    report(Progress("loading", text="Loading the weights"))
    model = _load_weights(source.base or source, config, settings)
    if source.base:
        model = _apply_adapter(model, source.folder, len(tokenizer))
    defaults = read_defaults(model.generation_config)
    settle_generation(model, tokenizer)
    if settings.quantize:
        check_packed(model, settings.quantize)
    if settings.compile:
        report(Progress("loading", text="Compiling, which takes minutes"))
        compile_step(model)
    info = ModelInfo(
        name=source.name,
        device=", ".join(list_devices(model)),
        dtype=settings.quantize or name_dtype(model.dtype),
        window=context_window(model.config, tokenizer),
        defaults=settings.params().over(defaults),
        is_base=not tokenizer.chat_template,
    )
    return LoadedModel(model, tokenizer, info)


def load_tokenizer(source: Source, settings: EngineSettings) -> PreTrainedTokenizerBase:
    """Load the tokenizer, an adapter's own before its base's, with the chat template that the settings name."""
    if source.base and not (source.folder / "tokenizer_config.json").is_file():
        return load_tokenizer(source.base, settings)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.folder, trust_remote_code=settings.trust_remote_code, **_gguf(source)
        )
    except Exception as error:
        lack = explain_tokenizer_failure(source.folder)
        raise lack or error from None
    if settings.chat_template:
        tokenizer.chat_template = read_chat_template(settings.chat_template)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def read_chat_template(value: str) -> str:
    """Return the Jinja text of a template file, or of a shipped template by its name. Raises: ModelLoadError."""
    file = Path(value).expanduser()
    if file.is_file():
        return file.read_text("utf-8")
    names = shipped_names()
    if value not in names:
        raise ModelLoadError(
            f"There is no chat template {value}: no file, and none of {', '.join(names)}. Check --chat-template."
        )
    return read_shipped(value)


def _load_weights(source: Source, config: PreTrainedConfig, settings: EngineSettings) -> PreTrainedModel:
    files = [source.folder / source.gguf] if source.gguf else find_weights(source.folder)
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.dtype, device, config.get_text_config().dtype)
    needed = count_bytes(files, dtype)
    packing: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True)} if source.gguf else {}
    if settings.quantize:
        packing = {"quantization_config": plan_quantization(settings.quantize, source, config, dtype)}
        needed = packed_bytes(needed, settings.quantize, dtype)
    device_map = place(settings.device, device, needed)
    model, loading = choose_class(config).from_pretrained(
        source.folder,
        config=config,
        dtype=dtype,
        # Where none is named, bitsandbytes takes a GPU, also if the CPU was asked for.
        device_map={"": device} if device_map is None and settings.quantize else device_map,
        trust_remote_code=settings.trust_remote_code,
        output_loading_info=True,
        **_gguf(source),
        **packing,
    )
    missing = sorted(loading["missing_keys"])
    if missing:
        raise ModelLoadError(
            f"The weights of {source.name} are not those of a whole {config.model_type} model that writes text: "
            f"{len(missing)} are missing, as {missing[0]}. Choose another model, or download it again."
        )
    loaded: PreTrainedModel = model
    return loaded


def _gguf(source: Source) -> dict[str, Any]:
    return {"gguf_file": source.gguf} if source.gguf else {}


def _apply_adapter(model: PreTrainedModel, folder: Path, vocabulary: int) -> PreTrainedModel:
    """Return the model with the adapter's changes merged into its weights, so that it runs as fast as its base."""
    from peft import PeftModel  # only who uses adapters has it

    if vocabulary > model.get_input_embeddings().num_embeddings:  # type: ignore[operator]  # an Embedding's is an int
        model.resize_token_embeddings(vocabulary)
    merged: PreTrainedModel = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    return merged
