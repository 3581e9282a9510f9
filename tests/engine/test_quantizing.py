"""Weights packed in 8 or 4 bits, by the real package, of real tiny models."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from chat.engine import load_errors, loading
from chat.engine.batched import BatchedEngine
from chat.engine.direct import DirectEngine
from chat.engine.loading import LoadedModel, load_model
from chat.engine.local import LocalEngine
from chat.engine.quantizing import Width, packed_bytes
from chat.settings import EngineSettings
from chat.types import GenerationParams, ModelLoadError
from tests.engine.models import save_gguf, tiny_llama, tiny_t5

PROMPT = torch.arange(100, 120)[None]
GREEDY = GenerationParams(max_new_tokens=12, temperature=0)
WIDTHS: tuple[Width, ...] = ("int8", "int4")
LARGEST_ERROR = {"int8": 0.03, "int4": 0.25}
"""Of the scores, relative to their size: 8 bits round to 1 in 254 of a row's largest weight, 4 bits to 1 in 16."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama that is wide enough to be packed in blocks of 64; no test changes it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model, tokenizer = tiny_llama(hidden_size=64, intermediate_size=128)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load(model: Path | str, quantize: Width | None = None, **settings: Any) -> LoadedModel:
    fields = {"dtype": "float32", "device": "cpu", **settings}
    return load_model(EngineSettings(model=str(model), quantize=quantize, **fields), lambda _: None)


@torch.no_grad()
def scores(loaded: LoadedModel) -> torch.Tensor:
    return loaded.model(PROMPT).logits.float()


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_packed_model_is_smaller_and_nearly_the_same(saved: Path, width: Width, dtype: str) -> None:
    whole, packed = load(saved, dtype=dtype), load(saved, width, dtype=dtype)
    assert packed.info.dtype == width
    assert packed.model.get_memory_footprint() < 0.9 * whole.model.get_memory_footprint()
    assert LARGEST_ERROR[width] / 30 < difference(scores(packed), scores(whole)) < LARGEST_ERROR[width]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("engine", [DirectEngine, BatchedEngine])
def test_a_packed_model_streams_what_it_generates_by_itself(
    saved: Path, width: Width, engine: type[LocalEngine]
) -> None:
    loaded = load(saved, width)
    with closing(engine(loaded, EngineSettings())) as engine_:
        text = "".join(chunk.text for chunk in engine_.stream("Hello there", GREEDY))
    prompt = loaded.tokenizer("Hello there", return_tensors="pt")
    alone = loaded.model.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert text == loaded.tokenizer.decode(alone[0, prompt.input_ids.shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_neither_packing_nor_computing_writes_to_the_terminal(
    saved: Path, width: Width, capfd: pytest.CaptureFixture[str]
) -> None:
    scores(load(saved, width))
    assert capfd.readouterr() == ("", "")


def test_an_adapter_is_merged_into_packed_weights(saved: Path, tmp_path: Path) -> None:
    config = peft.LoraConfig(r=4, lora_alpha=1, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        peft.get_peft_model(load(saved).model, config).save_pretrained(tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "base_model_name_or_path": str(saved)}))
    for width in WIDTHS:
        packed = scores(load(tmp_path, width))
        assert difference(packed, scores(load(tmp_path))) < LARGEST_ERROR[width]
        assert difference(packed, scores(load(saved))) > LARGEST_ERROR[width]


def test_an_encoder_decoder_can_be_packed(tmp_path: Path) -> None:
    model, tokenizer = tiny_t5()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load(tmp_path, "int8")
    assert loaded.model.get_memory_footprint() < model.get_memory_footprint()


def test_a_model_that_cannot_be_computed_packed_is_refused_when_it_loads(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails first in a forward pass, as layers that the packed products have no kernel for, fails here."""

    def fail(model: torch.nn.Module, *_: object) -> None:
        raise RuntimeError("shape '[32, 0]' is invalid")

    settle = loading.settle_generation
    monkeypatch.setattr(
        loading,
        "settle_generation",
        lambda model, tokenizer: (settle(model, tokenizer), model.register_forward_pre_hook(fail)),
    )
    with pytest.raises(ModelLoadError, match=r"cannot be computed in int4 on cpu .*shape.* try --quantize int8"):
        load(saved, "int4")


def test_what_is_quantized_already_is_refused(saved: Path, tmp_path: Path) -> None:
    save_gguf(*tiny_llama(), tmp_path / "small.gguf")
    with pytest.raises(ModelLoadError, match=r"small is quantized already. Leave --quantize out"):
        load(f"{tmp_path}:small.gguf", "int8")
    load(saved, "int8").model.save_pretrained(tmp_path / "packed")
    load(saved).tokenizer.save_pretrained(tmp_path / "packed")
    with pytest.raises(ModelLoadError, match=r"packed is quantized already. Leave --quantize out"):
        load(tmp_path / "packed", "int8")


def test_a_missing_package_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_errors, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"The package bitsandbytes is needed .* Run: pip install bitsandbytes"):
        load(saved, "int8")


def test_zerogpu_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACES_ZERO_GPU", "1")
    with pytest.raises(ModelLoadError, match=r"ZeroGPU has no GPU yet .* Leave --quantize out"):
        load(saved, "int8")


def test_memory_is_counted_packed() -> None:
    assert packed_bytes(8000, "int8", torch.float32) == 2000
    assert packed_bytes(8000, "int4", torch.bfloat16) == 2000
