"""How much memory there is, also where a container may not have all of the machine's."""

import pytest
import torch

from chat.engine import memory
from chat.engine.memory import free_memory


def test_some_memory_is_free():
    assert 0 < free_memory(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(
    ("limit", "used", "left"), [("1000", "700", 350), ("1000", "2000", 0), ("max", "700", None), ("", "700", None)]
)
def test_a_container_has_what_its_limit_leaves(tmp_path, limit, used, left):
    """What was only read from files counts as used there, but gives way."""
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(used + "\n")
    (tmp_path / "memory.stat").write_text("anon 650\ninactive_file 50\n")
    assert memory._container_memory(tmp_path) == left


def test_a_machine_without_containers_has_no_such_limit(tmp_path):
    assert memory._container_memory(tmp_path) is None
