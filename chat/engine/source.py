"""Where a model's files lie on this machine, once they are here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from chat.engine import default_model, hub
from chat.engine.load_errors import require
from chat.engine.starting import Report
from chat.engine.weights import refuse_pointers
from chat.types import ModelLoadError, ModelNotFound

_PATH_LIKE = re.compile(r"^[./~\\]|\\|^[A-Za-z]:/|/.*/|/$")
"""What can only be meant as a path: a hub id is `name` or `owner/name`."""


@dataclass(frozen=True)
class Source:
    """A folder that transformers can load from; `gguf` is the file in it to read, if it is that kind.

    An adapter's folder holds no whole model: `base` is where the model lies that it changes.
    """

    name: str
    folder: Path
    gguf: str | None = None
    base: Source | None = None


def find_source(model: str, revision: str, report: Report) -> Source:
    """Find what `model` names, fetching it if it is not here: a hub id, a folder, `...:file.gguf`, or "".

    A folder is never looked for on the hub. Raises: ModelNotFound, ModelLoadError, and whatever the hub client raises.
    """
    if not model:
        return Source(default_model.NAME, default_model.fetch(report))
    path, gguf = split_gguf(model)
    folder = Path(path).expanduser()
    if folder.is_dir():
        name = folder.resolve().name
    elif folder.exists() or _PATH_LIKE.search(path):
        raise ModelNotFound(f"There is no folder {path}. Check --model; a hub model is written owner/name.")
    else:
        name, folder = path, hub.download(path, revision, gguf, report)
    refuse_pointers(file for file in folder.iterdir() if file.is_file())
    if gguf:
        return _gguf_source(folder, gguf)
    return Source(name, folder, base=_find_base(folder, report))


def split_gguf(model: str) -> tuple[str, str | None]:
    """Split `folder-or-id:file.gguf`, or the plain path of a GGUF file, into the folder or id and the file."""
    if not model.endswith(".gguf"):
        return model, None
    file = Path(model).expanduser()
    if file.is_file():
        return str(file.parent), file.name
    folder, colon, name = model.rpartition(":")
    if not colon:
        raise ModelNotFound(
            f"There is no file {model}. A GGUF file is written folder:file.gguf or owner/name:file.gguf."
        )
    return folder, name


def _gguf_source(folder: Path, gguf: str) -> Source:
    if (folder / gguf).is_file():
        return Source(Path(gguf).stem, folder, gguf)
    here = ", ".join(sorted(file.name for file in folder.glob("*.gguf"))) or "no GGUF files"
    raise ModelNotFound(f"There is no file {gguf} in {folder}. It holds: {here}.")


def _find_base(folder: Path, report: Report) -> Source | None:
    """Return the model that the adapter in `folder` changes; None if `folder` holds a whole model."""
    adapter = folder / "adapter_config.json"
    if not adapter.is_file() or (folder / "config.json").is_file():
        return None
    require("peft", "to load an adapter")
    base = json.loads(adapter.read_text("utf-8")).get("base_model_name_or_path")
    if not base:
        raise ModelLoadError(f"{adapter} does not name its base model. Add base_model_name_or_path to it.")
    return find_source(base, "", report)
