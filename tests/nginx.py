"""A real nginx with the README's blocks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.web.pages import free_port

README = Path(__file__).parents[1] / "README.md"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
AROUND = """
daemon off;
master_process off;
error_log stderr notice;
pid nginx.pid;
events {{ worker_connections 2000; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{blocks}
}}
"""


def read_blocks() -> list[str]:
    """Return what the README gives to nginx: the server, and the upstream of several copies."""
    return re.findall(r"```nginx\n(.*?)```", README.read_text(encoding="utf-8"), re.S)


@contextmanager
def serve_blocks(folder: Path, blocks: list[str], ours: Mapping[str, str]) -> Iterator[str]:
    """Run the blocks, with `ours` in place of what the README says; yield the page's address.

    Port and certificate are the test's own. Without an nginx the test is skipped, but never in CI.
    """
    if NGINX is None and "CI" not in os.environ:
        pytest.skip("There is no nginx here.")
    port, text = free_port(), "\n".join(blocks)
    for theirs, our in {"listen 443": f"listen 127.0.0.1:{port}", "/etc/ssl/": f"{folder}/", **ours}.items():
        assert theirs in text
        text = text.replace(theirs, our)
    (folder / "nginx.conf").write_text(AROUND.format(blocks=text))
    write_certificate(folder)
    command = [NGINX, "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as nginx:
        try:
            # It says so once it listens.
            next(line for line in nginx.stderr if "event method" in line)
            yield f"https://127.0.0.1:{port}/chat"
        finally:
            nginx.terminate()


def write_certificate(folder: Path) -> None:
    key = ["-keyout", folder / "chat.key", "-out", folder / "chat.pem"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *key],
        check=True,
        capture_output=True,
    )
