"""Who can reach the page, and what keeps them out."""

from __future__ import annotations

from collections.abc import Iterator

from chat.settings import Settings
from chat.web.access import is_public

_NO_LINK = (
    "There is no share link; the lines above say why. The page runs all the same, on this machine. A link needs the "
    "internet, and frpc, a program that Gradio fetches and virus scanners may remove. Without it, --host 0.0.0.0 opens "
    "the page to your own network, and any other tunnel can lead to the address below."
)
_LOGIN = "The page asks everybody for a name and a password."
_NO_LOGIN = "The page is open to everybody who can reach it. --auth NAME:PASSWORD makes it ask for a login."


def describe(settings: Settings, share_url: str | None) -> Iterator[str]:
    """Yield what to tell who started a server that others can reach, also through a proxy on this machine.

    That the API is closed is in the log already.
    """
    if settings.share and not share_url:
        yield _NO_LINK
    if is_public(settings) or settings.root_path:
        yield _LOGIN if settings.has_login else _NO_LOGIN
        if settings.api_key:
            yield "The HTTP API asks everybody for a key."
