"""Loading from folders, GGUF files and adapters, all of them real and tiny."""

from __future__ import annotations

import gc
import json
import logging
import shutil
import socket
import sys
import weakref
from pathlib import Path
from typing import Any, NoReturn

import peft
import pytest
import torch
from transformers import PreTrainedModel, dynamic_module_utils

from chat.engine import load_errors, loading
from chat.engine.loading import LoadedModel, load_model, read_chat_template
from chat.engine.preparing import Preparer
from chat.settings import EngineSettings
from chat.types import ModelLoadError, ModelNotFound, Progress
from tests.engine.models import (
    TURN_END,
    llama_for,
    save_gguf,
    sentencepiece_tokenizer,
    tiny_llama,
    tiny_t5,
)

PROMPT = torch.arange(100, 120)[None]


def load(model: Path | str, **settings: Any) -> LoadedModel:
    return load_model(EngineSettings(model=str(model), dtype="float32", **settings), lambda _: None)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama in it; no test changes it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model, tokenizer = tiny_llama()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def change_json(file: Path, **fields: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **fields}), "utf-8")


def test_a_folder_loads_with_what_is_to_be_known_of_it(saved: Path) -> None:
    loaded = load(saved)
    info = loaded.info
    assert (info.name, info.device, info.dtype, info.window, info.is_base) == ("tiny", "cpu", "float32", 512, False)
    assert torch.equal(loaded.model(PROMPT).logits, tiny_llama()[0](PROMPT).logits)


def test_weights_that_are_only_there_as_a_pickle_load(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(tiny_llama()[0].state_dict(), folder / "pytorch_model.bin")
    assert torch.equal(load(folder).model(PROMPT).logits, tiny_llama()[0](PROMPT).logits)


def test_no_parameter_is_left_without_its_weights(saved: Path) -> None:
    """L3."""
    model = load(saved).model
    assert not model.training
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def test_a_folder_loads_without_any_call_to_the_network(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L6."""
    calls = []

    def refuse(*args: object) -> NoReturn:
        calls.append(args)
        raise OSError("blocked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    load(saved)
    assert calls == []


def test_neither_loading_nor_generating_writes_to_the_terminal(
    saved: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """C8, C10, C12."""
    caplog.set_level(logging.WARNING)
    logging.getLogger("transformers").addHandler(caplog.handler)
    loaded = load(saved)
    prompt = loaded.tokenizer("Hello", return_tensors="pt")
    for sampling in ({"do_sample": False}, {"do_sample": True, "temperature": 0.5, "top_p": 0.9, "top_k": 7}):
        loaded.model.generate(**prompt, max_new_tokens=3, **sampling)
    logging.getLogger("transformers").removeHandler(caplog.handler)
    assert capfd.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records] == []
    assert [str(warning.message) for warning in recwarn] == []


def test_what_the_model_says_of_searching_is_not_left_to_warn_of(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """S3, C8, C12."""
    change_json(
        folder / "generation_config.json",
        **{"num_beams": 3, "max_length": 20, "early_stopping": True, "length_penalty": 2.0, "min_p": 0.1},
    )
    loaded = load(folder)
    assert [r.getMessage() for r in caplog.records] == [
        "The model asks for 3 beams, which cannot be streamed; using 1."
    ]
    loaded.model.generate(**loaded.tokenizer("Hello " * 20, return_tensors="pt"), max_new_tokens=3)
    assert capfd.readouterr().err == ""


def test_loading_reports_its_stages_and_the_weights(saved: Path) -> None:
    seen: list[Progress] = []
    load_model(EngineSettings(model=str(saved), dtype="float32"), seen.append)
    assert seen[0].text == "Reading the tokenizer"
    counts = [progress.done for progress in seen if progress.total]
    assert counts == sorted(counts)
    assert counts[-1] == seen[-1].total


def test_settings_go_over_the_models_own_defaults(folder: Path) -> None:
    change_json(folder / "generation_config.json", do_sample=True, temperature=0.3, top_k=9)
    defaults = load(folder, top_k=4, max_new_tokens=77).info.defaults
    assert (defaults.temperature, defaults.top_p, defaults.top_k, defaults.max_new_tokens) == (0.3, 0.95, 4, 77)


def test_every_end_token_ends_a_reply(folder: Path) -> None:
    """S16: the generation config names one end, the template ends a turn with another."""
    change_json(folder / "generation_config.json", eos_token_id=0)
    loaded = load(folder)
    assert Preparer(loaded).end_ids == {0, loaded.tokenizer.convert_tokens_to_ids(TURN_END)}


def test_a_model_without_chat_template_is_a_base_model(folder: Path) -> None:
    """C5."""
    (folder / "chat_template.jinja").unlink()
    assert load(folder).info.is_base


def test_a_chat_template_file_goes_over_the_models_own(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}{{ m.content }}{% endfor %}", "utf-8")
    tokenizer = load(saved, chat_template=str(file)).tokenizer
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "Hi"


def test_a_chat_template_that_is_not_there_or_has_a_mistake_is_told(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"There is no chat template"):
        read_chat_template(str(tmp_path / "none.jinja"))
    file = tmp_path / "bad.jinja"
    file.write_text("{% for m in messages %}\n{{ m.content }\n{% endfor %}", "utf-8")
    with pytest.raises(ModelLoadError, match=r"The chat template has a mistake in line 2"):
        Preparer(load(saved, chat_template=str(file)))


def test_a_tokenizer_without_a_rust_core_loads(tmp_path: Path) -> None:
    tokenizer = sentencepiece_tokenizer()
    llama_for(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert not loaded.tokenizer.is_fast
    assert loaded.tokenizer("Hello 今日")["input_ids"] == tokenizer("Hello 今日")["input_ids"]
    assert tokenizer.convert_tokens_to_ids(TURN_END) in loaded.model.generation_config.eos_token_id


def test_an_encoder_decoder_loads_whole(tmp_path: Path) -> None:
    model, tokenizer = tiny_t5()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert loaded.model.config.is_encoder_decoder
    assert loaded.model.generate(**loaded.tokenizer("Hello", return_tensors="pt"), max_new_tokens=3).shape[1] <= 4


@pytest.mark.parametrize("named_as", ["{folder}:tiny.gguf", "{folder}/tiny.gguf"])
def test_a_gguf_file_loads_as_the_same_model(tmp_path: Path, named_as: str) -> None:
    model, tokenizer = tiny_llama()
    save_gguf(model, tokenizer, tmp_path / "tiny.gguf")
    loaded = load(named_as.format(folder=tmp_path))
    assert torch.equal(loaded.model(PROMPT).logits, model(PROMPT).logits)
    assert (loaded.info.name, loaded.info.window, loaded.info.is_base) == ("tiny", 512, False)
    assert set(loaded.model.generation_config.eos_token_id) == {0, loaded.tokenizer.convert_tokens_to_ids(TURN_END)}
    assert loaded.tokenizer("Hello, 世界!")["input_ids"] == tokenizer("Hello, 世界!")["input_ids"]


def test_a_gguf_files_unknown_architecture_is_named(tmp_path: Path) -> None:
    """L9."""
    save_gguf(*tiny_llama(), tmp_path / "odd.gguf", arch="oddity")
    with pytest.raises(ModelLoadError, match=r"odd.gguf has the architecture 'oddity', which transformers"):
        load(f"{tmp_path}:odd.gguf")


def test_an_unknown_architecture_is_named(folder: Path) -> None:
    change_json(folder / "config.json", model_type="oddity")
    with pytest.raises(
        ModelLoadError, match=r"tiny has the architecture 'oddity', which transformers .* does not know"
    ):
        load(folder)


def test_a_model_that_does_not_write_text_is_refused(folder: Path) -> None:
    change_json(folder / "config.json", model_type="vit")
    with pytest.raises(ModelLoadError, match=r"A vit model does not write text"):
        load(folder)


OWN_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def own_code(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that brings Python code of its own."""
    (folder / "own.py").write_text(OWN_CODE, "utf-8")
    auto_map = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    change_json(folder / "config.json", model_type="own", auto_map=auto_map)
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


def test_a_models_own_code_is_neither_run_nor_asked_about_on_stdin(
    own_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L10."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("stdin was read")

    monkeypatch.setattr("builtins.input", refuse)
    with pytest.raises(ModelLoadError, match=r"tiny brings its own Python code .* start with --trust-remote-code"):
        load(own_code)


def test_a_models_own_code_runs_when_it_is_trusted(own_code: Path) -> None:
    assert type(load(own_code, trust_remote_code=True).model).__name__ == "OwnForCausalLM"


@pytest.fixture
def adapter(saved: Path, tmp_path: Path) -> Path:
    """A folder with a LoRA adapter for the saved model, as peft writes it."""
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        adapted = peft.get_peft_model(tiny_llama()[0], config)
    folder = tmp_path / "adapter"
    adapted.save_pretrained(folder)
    change_json(folder / "adapter_config.json", base_model_name_or_path=str(saved))
    return folder


def test_an_adapter_loads_with_its_base(saved: Path, adapter: Path) -> None:
    loaded = load(adapter)
    wanted = peft.PeftModel.from_pretrained(load(saved).model, adapter)
    torch.testing.assert_close(loaded.model(PROMPT).logits, wanted(PROMPT).logits)
    assert not torch.allclose(loaded.model(PROMPT).logits, tiny_llama()[0](PROMPT).logits)
    assert isinstance(loaded.model, PreTrainedModel)
    assert (loaded.info.name, loaded.info.is_base) == ("adapter", False)


def test_an_adapters_own_tokenizer_is_used_and_the_model_grows_to_it(saved: Path, tmp_path: Path) -> None:
    model, tokenizer = tiny_llama()
    tokenizer.add_tokens(["<new>"])
    model.resize_token_embeddings(len(tokenizer))
    peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"])).save_pretrained(
        tmp_path, save_embedding_layers=True
    )
    tokenizer.save_pretrained(tmp_path)
    change_json(tmp_path / "adapter_config.json", base_model_name_or_path=str(saved))
    loaded = load(tmp_path)
    assert loaded.model.get_input_embeddings().weight.shape[0] == len(loaded.tokenizer) == len(tokenizer)


def test_an_adapter_without_peft_names_the_package(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_errors, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"The package peft is needed to load an adapter. Run: pip install peft"):
        load(adapter)


def test_weights_of_another_kind_of_model_are_refused(folder: Path) -> None:
    llama_for(tiny_llama()[1], num_hidden_layers=1).save_pretrained(folder / "less")
    shutil.copy(folder / "less" / "model.safetensors", folder)
    with pytest.raises(
        ModelLoadError, match=r"The weights of tiny are not those of a whole llama model .* are missing"
    ):
        load(folder)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere", "some/where/else", "C:\\models\\x"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """L6."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was asked"))
    with pytest.raises(ModelNotFound, match=r"There is no folder"):
        load(name)


def test_a_folder_without_a_model_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"holds no model: it has no config.json"):
        load(tmp_path)


def test_a_model_without_its_tokenizer_is_told_so(folder: Path) -> None:
    """L5."""
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelLoadError, match=r"holds no tokenizer. Copy the tokenizer's files there"):
        load(folder)


def test_a_missing_tokenizer_package_is_named_rightly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: what is blamed is the package for the file that is there, not tiktoken."""
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (folder / "tokenizer.model").write_bytes(b"not read without the package")
    monkeypatch.setattr(load_errors, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"The package sentencepiece is needed to read tokenizer.model"):
        load(folder)


def test_a_failed_load_leaves_no_weights_behind(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L4: the error keeps neither frames nor tensors alive."""
    kept: list[weakref.ref[PreTrainedModel]] = []

    def fail(model: PreTrainedModel, _: object) -> NoReturn:
        kept.append(weakref.ref(model))
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(loading, "settle_generation", fail)
    with pytest.raises(ModelLoadError, match=r"There is not enough memory for") as caught:
        load(saved)
    gc.collect()
    assert kept[0]() is None
    assert caught.value.__context__ is None


def test_an_unexpected_error_is_logged_whole_and_told_in_short(
    saved: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError("of a kind\nnobody foresaw, with hf_secret123")

    monkeypatch.setattr(loading, "settle_generation", fail)
    with pytest.raises(ModelLoadError, match=r"ZeroDivisionError: of a kind nobody foresaw, with hf_\*\*\*$"):
        load(saved)
    assert caplog.records[-1].exc_info
