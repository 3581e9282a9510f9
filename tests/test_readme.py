"""The README keeps what it promises: the Space's header, and the commands that CI runs."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEADER = yaml.safe_load(README.split("---\n")[1])


def pinned(package):
    return re.search(rf"^{package}==(.+)$", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.M)[1]


def test_the_space_header_is_complete():
    """Z5"""
    assert HEADER["sdk"] == "gradio"
    assert HEADER["license"] == "apache-2.0"
    assert (ROOT / HEADER["app_file"]).is_file()
    assert len(HEADER["short_description"]) <= 60
    assert HEADER["python_version"] in ("3.11", "3.12")


def test_the_space_gets_the_pinned_gradio():
    """Z5: the header wins over requirements.txt there."""
    assert HEADER["sdk_version"] == pinned("gradio")


def test_ci_runs_the_readmes_test_command():
    command = next(line for line in README.splitlines() if line.endswith("-m tests"))
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_file_that_the_readme_names_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []
