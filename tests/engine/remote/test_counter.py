from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chat.types import GenerationParams, ModelNotFound
from tests.engine.models import byte_tokenizer
from tests.engine.remote.conftest import Connect, ask, read, settle
from tests.upstream import Upstream

SILENT = [{"id": "m"}]
"""A list of models that does not tell the window."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = byte_tokenizer()
    tokenizer.model_max_length = 200
    tokenizer.save_pretrained(folder)
    return folder


def test_a_named_tokenizer_counts_for_a_server_that_cannot(connect: Connect, tokenizer: Path) -> None:
    """C3"""
    upstream = Upstream(models=SILENT)
    engine = connect(upstream, tokenizer=str(tokenizer))
    prompt = [*ask("old " * 60), {"role": "assistant", "content": "Yes."}, *ask("Why?")]
    reply = read(engine.stream(prompt, GenerationParams(max_new_tokens=500)))
    own = byte_tokenizer().apply_chat_template(ask("Why?"), add_generation_prompt=True, return_dict=True)
    assert upstream.asked[0]["messages"] == ask("Why?")
    assert upstream.asked[0]["max_tokens"] == 200 - len(own["input_ids"])
    assert reply.usage is not None
    assert reply.usage.messages_left_out == 2


def test_a_named_tokenizer_counts_plain_text(connect: Connect, tokenizer: Path) -> None:
    upstream = Upstream(models=SILENT)
    read(connect(upstream, tokenizer=str(tokenizer)).stream("Привет " * 20, GenerationParams(max_new_tokens=500)))
    assert upstream.asked[0]["max_tokens"] == 200 - len(byte_tokenizer().encode("Привет " * 20))


def test_a_tokenizer_that_is_not_there_is_named(connect: Connect, tmp_path: Path) -> None:
    error = settle(connect(Upstream(models=SILENT), tokenizer=str(tmp_path)), "failed").error
    assert isinstance(error, ModelNotFound)
    assert "--tokenizer" in str(error)


def test_counting_imports_no_torch(tokenizer: Path) -> None:
    code = (
        "import sys; from chat.engine.remote.counter import _count, _read; "
        "assert _count(_read(sys.argv[1]), [{'role': 'user', 'content': 'Why?'}]) > 4; "
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tokenizer)]).returncode == 0
