"""A compiled step, by the real compiler, of real tiny models."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor

from chat.engine.compiling import compile_step
from chat.engine.direct import DirectEngine
from chat.engine.loading import LoadedModel, load_model
from chat.settings import EngineSettings
from chat.types import GenerationParams, Message, ModelLoadError, Progress
from tests.engine.models import tiny_llama, tiny_t5

GREEDY = GenerationParams(max_new_tokens=40, temperature=0)


def ask(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    model, tokenizer = tiny_llama(num_hidden_layers=1)
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(folder: Path, **fields: object) -> EngineSettings:
    return EngineSettings(model=str(folder), dtype="float32", device="cpu", engine="direct", **fields)


@pytest.fixture(scope="module")
def compiled(folder: Path) -> LoadedModel:
    """The model, compiled once for all tests."""
    return load_model(settings(folder, compile=True), lambda _: None)


@pytest.fixture(scope="module")
def plain(folder: Path) -> LoadedModel:
    return load_model(settings(folder), lambda _: None)


def talk(loaded: LoadedModel, *prompts: list[Message]) -> list[tuple[str, int]]:
    """Return the reply to each of `prompts`, and how many tokens of it had been read before."""
    replies = []
    with closing(DirectEngine(loaded, EngineSettings())) as engine:
        for prompt in prompts:
            chunks = list(engine.stream(prompt, GREEDY))
            assert chunks[-1].usage
            replies.append(("".join(chunk.text for chunk in chunks), chunks[-1].usage.cached_tokens))
    return replies


def test_one_compiled_step_serves_every_length(
    compiled: LoadedModel, plain: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled.model.forward, "stance", "fail_on_recompile")
    prompts = [ask("Hi"), ask("Hello there. " * 20), [*ask("Hi"), {"role": "assistant", "content": "x"}, *ask("Ho")]]
    assert talk(compiled, *prompts) == talk(plain, *prompts)


def test_a_cache_that_was_cropped_is_gone_on_from(compiled: LoadedModel, plain: LoadedModel) -> None:
    first, again = talk(compiled, ask("Hello"), ask("Hello"))
    assert again[0] == first[0]
    assert again[1] > 0
    assert [first, again] == talk(plain, ask("Hello"), ask("Hello"))


def test_a_compiled_reply_can_be_stopped(compiled: LoadedModel) -> None:
    """T1."""
    with closing(DirectEngine(compiled, EngineSettings())) as engine:
        stream = engine.stream(ask("Hello"), GenerationParams(max_new_tokens=400, temperature=0))
        next(chunk for chunk in stream if chunk.text)
        stream.close()
        assert "".join(chunk.text for chunk in engine.stream(ask("Hello"), GREEDY))


def test_loading_says_that_it_compiles_and_really_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    compiled_graphs: list[torch.fx.GraphModule] = []

    def compile_quickly(forward: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def note(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
            compiled_graphs.append(graph)
            return graph.forward

        return original(forward, backend=note, **options)

    original = torch.compile
    monkeypatch.setattr(torch, "compile", compile_quickly)
    load_model(settings(folder, compile=True), seen.append)
    assert seen[-1].text == "Compiling, which takes minutes"
    assert len(compiled_graphs) == 1


def test_a_machine_without_a_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor.cpp, "cxx", (None, "no-such-compiler"))
    monkeypatch.setattr(inductor, "force_disable_caches", True)
    # Of a size of its own, for which the process has compiled nothing yet.
    model = tiny_llama(num_hidden_layers=1, hidden_size=40, intermediate_size=72)[0]
    with pytest.raises(ModelLoadError, match=r"cannot be compiled here: .*compiler.*Leave --compile out"):
        compile_step(model)


def test_what_cannot_be_compiled_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelLoadError, match=r"it is an encoder-decoder. Leave --compile out"):
        compile_step(tiny_t5()[0])
    monkeypatch.setenv("SPACES_ZERO_GPU", "1")
    with pytest.raises(ModelLoadError, match=r"ZeroGPU gives each reply a process of its own"):
        compile_step(tiny_llama()[0])
