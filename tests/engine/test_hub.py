"""Downloads from the hub, against a hub on this machine."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from chat.engine.hub import choose_files
from chat.engine.loading import load_model
from chat.settings import EngineSettings
from chat.types import ModelLoadError, ModelNotFound, Progress
from tests.engine.hub_server import Hub, serve
from tests.engine.models import save_gguf, tiny_llama

SETTINGS = EngineSettings(model="owner/tiny", dtype="float32")


def ignore(_: Progress) -> None:
    pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Hub, None, None]:
    """A hub with one repository and, beside the model, what repositories hold that nobody needs."""
    folder = tmp_path / "repository"
    model, tokenizer = tiny_llama()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "original").mkdir()
    for extra in ("pytorch_model.bin", "consolidated.safetensors", "original/weights.pth", "model.onnx", "README.md"):
        (folder / extra).write_bytes(b"not needed" * 100)
    with serve(Hub(folder)) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def test_downloads_each_weight_once_and_nothing_that_is_not_needed(hub: Hub) -> None:
    loaded = load_model(SETTINGS, ignore)
    assert loaded.info.name == "owner/tiny"
    assert sorted(hub.fetched) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_reports_the_bytes_of_all_files_together(hub: Hub) -> None:
    seen: list[Progress] = []
    load_model(SETTINGS, seen.append)
    bytes_seen = [progress for progress in seen if progress.text == "Downloading owner/tiny" and progress.total]
    size = sum((hub.folder / name).stat().st_size for name in hub.fetched)
    assert {progress.total for progress in bytes_seen} == {size}
    assert [progress.done for progress in bytes_seen] == sorted(progress.done for progress in bytes_seen)
    assert bytes_seen[-1].done == size


def test_a_second_start_fetches_nothing(hub: Hub) -> None:
    load_model(SETTINGS, ignore)
    hub.fetched.clear()
    load_model(SETTINGS, ignore)
    assert hub.fetched == []


def test_a_full_cache_loads_when_the_hub_is_gone(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """L6."""
    load_model(SETTINGS, ignore)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert load_model(SETTINGS, ignore).info.name == "owner/tiny"


def test_without_hub_and_cache_the_advice_is_to_check_the_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelLoadError, match="The hub cannot be reached, and owner/tiny is not whole in the cache"):
        load_model(SETTINGS, ignore)


@pytest.mark.parametrize(
    ("refusal", "token", "advice"),
    [
        (
            (401, "RepoNotFound"),
            None,
            "no public model owner/tiny. Check the spelling of --model; if it is private, log",
        ),
        ((404, "RepoNotFound"), "hf_secret", "no model owner/tiny that your account can see. Check the spelling"),
        ((401, "GatedRepo"), None, "only for people who accepted its terms. Accept them on its page"),
        ((403, "GatedRepo"), "hf_secret", "Your account has no access to owner/tiny yet. Ask for it on its page"),
        ((404, "RevisionNotFound"), None, "owner/tiny has no such branch, tag or commit. Check --revision"),
        ((403, ""), "hf_secret", "The hub refused your access token for owner/tiny"),
        ((429, ""), None, "The hub takes no more requests"),
        ((400, ""), None, "The hub answered with status 400"),
    ],
)
def test_each_refusal_has_advice_of_its_own_that_tells_no_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, str], token: str | None, advice: str
) -> None:
    """L7."""
    hub.refusal = refusal
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ModelLoadError, match=advice) as caught:
        load_model(SETTINGS, ignore)
    assert hub.tokens == {token and f"Bearer {token}"}
    assert "hf_secret" not in str(caught.value)


@pytest.mark.parametrize("model", ["owner/no such name", "owner/name--x", "a:b"])
def test_what_cannot_be_a_hub_id_is_told_so_without_asking_the_hub(hub: Hub, model: str) -> None:
    with pytest.raises(ModelNotFound, match="is neither a folder here nor a hub id"):
        load_model(EngineSettings(model=model), ignore)
    assert hub.tokens == set()


def test_a_gguf_file_comes_alone(hub: Hub) -> None:
    save_gguf(*tiny_llama(), hub.folder / "tiny-q.gguf")
    loaded = load_model(EngineSettings(model="owner/tiny:tiny-q.gguf", dtype="float32"), ignore)
    assert hub.fetched == ["tiny-q.gguf"]
    assert loaded.model.dtype == torch.float32


def test_a_gguf_file_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(ModelNotFound, match=r"o/m has no file c.gguf. It has: a.gguf, q4/b.gguf."):
        choose_files(["q4/b.gguf", "a.gguf", "config.json"], "o/m", "c.gguf")


def test_a_repository_of_gguf_files_is_answered_with_how_to_name_one() -> None:
    with pytest.raises(ModelLoadError, match=r"o/m holds GGUF files. Name the one to load: --model o/m:a.gguf"):
        choose_files(["a.gguf", "config.json"], "o/m")


def test_a_repository_without_weights_is_refused_before_any_download() -> None:
    with pytest.raises(ModelLoadError, match="o/m holds no weights that transformers can load"):
        choose_files(["config.json", "model.onnx"], "o/m")


def test_shards_come_with_their_index() -> None:
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    names = [*shards, "model.safetensors.index.json", "config.json", "pytorch_model.bin", "model.fp16.safetensors"]
    assert sorted(choose_files(names, "o/m")) == sorted([*shards, "config.json", "model.safetensors.index.json"])
