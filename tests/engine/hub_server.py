"""A model hub on this machine: the few answers that the hub client asks for, from a real socket."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Serve the files of `folder` as the one repository `owner/tiny`; remember what was asked for.

    `refusal` is an HTTP status and the X-Error-Code that the real hub sends with it, for every request.
    """

    folder: Path
    refusal: tuple[int, str] | None = None
    url: str = ""
    fetched: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)


@contextmanager
def serve(hub: Hub) -> Generator[Hub, None, None]:
    """Run `hub` on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def _answer(self, send_body: bool) -> None:
        path = urlsplit(self.path).path
        self.hub.tokens.add(self.headers.get("Authorization"))
        if self.hub.refusal:
            status, code = self.hub.refusal
            return self._send(status, b"", send_body, {"X-Error-Code": code})
        if path.startswith("/api/models/owner/tiny/tree/"):
            tree = [{"type": "file", "path": n, "size": len(b), "oid": _digest(b)} for n, b in self._files().items()]
            return self._send(200, json.dumps(tree).encode(), send_body)
        if path in ("/api/models/owner/tiny", "/api/models/owner/tiny/revision/main"):
            return self._send(200, json.dumps({"id": "owner/tiny", "sha": COMMIT, "siblings": []}).encode(), send_body)
        name = path.removeprefix(f"/owner/tiny/resolve/{COMMIT}/")
        body = self._files().get(name)
        if body is None:
            code = "RevisionNotFound" if "/revision/" in path else "RepoNotFound"
            return self._send(404, b"", send_body, {"X-Error-Code": code})
        if send_body:
            self.hub.fetched.append(name)
        return self._send(200, body, send_body, {"ETag": f'"{_digest(body)}"', "X-Repo-Commit": COMMIT})

    def _files(self) -> dict[str, bytes]:
        files = (file for file in self.hub.folder.rglob("*") if file.is_file())
        return {file.relative_to(self.hub.folder).as_posix(): file.read_bytes() for file in files}

    def _send(self, status: int, body: bytes, send_body: bool, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if send_body:
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Write nothing to the terminal."""


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
