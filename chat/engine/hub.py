"""A model's files, fetched from the hub into its cache."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import HfApi, ResolvedRevision, get_cached_repo_tree, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import CachedRepoTreeNotFoundError
from huggingface_hub.hf_api import RepoFile

from chat.engine.progress import byte_bars
from chat.engine.starting import Report
from chat.engine.weights import choose_weights
from chat.types import ModelLoadError, ModelNotFound, Progress

TEXT_FILES = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py", ".spm", ".bpe")
"""How the small files that configure a model, its tokenizer and its chat template end."""

ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def download(repo: str, revision: str, gguf: str | None, report: Report) -> Path:
    """Fetch what is needed of `repo` and is not in the cache; return the folder with the files.

    Works from a complete cache when the hub is out of reach. Raises: ModelNotFound, ModelLoadError, and
    whatever the hub client raises.
    """
    text = f"Downloading {repo}"
    report(Progress("loading", text=text))
    resolved = HfApi().resolve_revision(repo, revision=revision or None)
    sizes = _list_files(repo, resolved)
    names = choose_files(sizes, repo, gguf)
    missing = sum(sizes[name] for name in names if not _is_cached(repo, name, resolved))
    folder = snapshot_download(
        repo, revision=resolved, allow_patterns=names, tqdm_class=byte_bars(report, missing, text)
    )
    return Path(folder)


def choose_files(names: Iterable[str], repo: str, gguf: str | None = None) -> list[str]:
    """Return the files to fetch: one set of weights, or the GGUF file, and the texts beside it.

    Raises: ModelNotFound if there is no such GGUF file, ModelLoadError if there are no weights at all.
    """
    top = {name for name in names if "/" not in name}
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if gguf:
        if gguf not in ggufs:
            raise ModelNotFound(f"{repo} has no file {gguf}. It has: {', '.join(ggufs) or 'no GGUF files'}.")
        return [gguf]
    weights = choose_weights(top) or next(([name] for name in ADAPTER_WEIGHTS if name in top), [])
    if weights:
        return [*weights, *sorted(name for name in top if name.endswith(TEXT_FILES) and name not in weights)]
    if ggufs:
        raise ModelLoadError(f"{repo} holds GGUF files. Name the one to load: --model {repo}:{ggufs[0]}")
    raise ModelLoadError(f"{repo} holds no weights that transformers can load. Choose another model.")


def _list_files(repo: str, revision: ResolvedRevision) -> dict[str, int]:
    """Return the sizes of all files by their path; a commit that was seen before is not asked for again."""
    try:
        tree = get_cached_repo_tree(repo, revision=revision)
    except CachedRepoTreeNotFoundError:
        tree = [
            entry
            for entry in HfApi().list_repo_tree(repo, recursive=True, revision=revision.resolved)
            if isinstance(entry, RepoFile)
        ]
    return {file.path: file.size for file in tree}


def _is_cached(repo: str, name: str, revision: ResolvedRevision) -> bool:
    return isinstance(try_to_load_from_cache(repo, name, revision=revision.resolved), str)
