"""The container files name what is there; building them needs a network, and is not tried here."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from chat.settings import Settings

ROOT = Path(__file__).parents[1]
CONTAINERFILE = (ROOT / "docs" / "Containerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "docs" / "compose.yaml").read_text(encoding="utf-8")


def test_what_is_copied_is_there_and_not_ignored():
    copied = re.findall(r"^COPY (\S+)", CONTAINERFILE, re.M)
    ignored = (ROOT / "docs" / "Containerfile.dockerignore").read_text(encoding="utf-8").split()
    assert set(copied) == {"requirements.txt", "app.py", "chat"}
    assert all((ROOT / name).exists() and f"!{name}" in ignored for name in copied)


def test_every_setting_that_is_named_exists():
    named = re.findall(r"\bCHAT_[A-Z_]+", CONTAINERFILE + COMPOSE)
    assert named
    assert {name.removeprefix("CHAT_").lower() for name in named} <= set(Settings.model_fields)


def test_the_page_asks_the_model_server_and_everybody_else_must_log_in(monkeypatch):
    services = yaml.safe_load(COMPOSE)["services"]
    for name, value in services["chat"]["environment"].items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert re.match(r"http://(\w+):", settings.engine)[1] in services
    assert settings.has_login
    assert settings.api_key
