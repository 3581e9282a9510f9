"""What is said about a page that others can reach, or were to reach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import httpx
import pytest
import uvicorn

import app
from chat.settings import Settings
from chat.web.sharing import describe

# A closed port: the test must not open a link where there is a network.
NO_NETWORK = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}


def test_without_a_link_the_page_still_runs_and_says_what_to_do(tmp_path):
    """G16"""
    command = [sys.executable, "-u", "app.py", "--share", "--port", "0", "--model", str(tmp_path / "missing")]
    environment = os.environ | NO_NETWORK | {name.lower(): value for name, value in NO_NETWORK.items()}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = ""
        while "The page is at" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        url = said.split("The page is at ")[1].split()[0]
        page = httpx.get(url, trust_env=False)
        process.terminate()
    assert page.status_code == 200
    assert "There is no share link" in said
    assert "--host 0.0.0.0" in said
    assert "--auth NAME:PASSWORD" in said
    assert "API is closed" in said
    assert "Traceback" not in said


def test_no_share_link_is_made_unasked():
    """G16"""
    assert not Settings().share
    assert list(describe(Settings(), None)) == []


@pytest.mark.parametrize("settings", [{"share": True}, {"host": "0.0.0.0"}, {"host": "::"}, {"root_path": "/chat"}])
@pytest.mark.parametrize(
    ("protection", "said"),
    [
        ({}, "open to everybody"),
        ({"auth": ["ann:right"]}, "asks everybody for a name"),
        ({"auth_file": "accounts"}, "asks everybody for a name"),
        ({"api_key": ["key"]}, "API asks everybody for a key"),
    ],
)
def test_whoever_opens_the_page_to_others_is_told_how_it_is_protected(settings, protection, said):
    assert said in " ".join(describe(Settings(**settings, **protection), "https://x.gradio.live"))


def test_on_a_space_visitors_have_the_addresses_that_its_proxy_tells(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "owner/space")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "")  # put back after the test
    monkeypatch.delenv("FORWARDED_ALLOW_IPS")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit, match="is taken"):
        app.main(["--port", str(taken.getsockname()[1])])
    config = uvicorn.Config(app="", log_config=None)
    assert config.forwarded_allow_ips == "10.0.0.0/8"
