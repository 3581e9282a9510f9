"""Serve the chat page and its API: `python app.py`. `python app.py --help` lists the settings."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from chat.accounts import BadAccount, read_accounts
from chat.settings import Settings, read_settings
from chat.space import on_space, on_zerogpu


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until Ctrl-C. The page is up before the model is."""
    settings = read_settings(Settings, "app.py", arguments)
    check_accounts(settings)
    check_hardware(settings)
    if on_space():
        # Visitors come through the Space's proxy. uvicorn reads here from which proxies it takes their addresses.
        os.environ.setdefault("FORWARDED_ALLOW_IPS", "10.0.0.0/8")
    port = choose_port(settings.host, settings.port)
    # Gradio takes seconds to import, so --help and mistakes are answered first.
    from chat.engine import create_engine
    from chat.web.api import create_api
    from chat.web.limits import Limits
    from chat.web.page import create_page
    from chat.web.sharing import describe

    engine = create_engine(settings)
    limits = Limits(settings)
    page = create_page(engine, settings, limits)
    try:
        page.launch(
            server_name=settings.host,
            server_port=port,
            root_path=settings.root_path,
            share=settings.share,
            app_kwargs={"routes": create_api(engine, settings, limits).routes},
            quiet=True,
            prevent_thread_lock=True,
        )
        for line in describe(settings, page.share_url):
            print(line)  # noqa: T201
        print(f"The page is at {page.local_url} (Ctrl-C ends it)", flush=True)  # noqa: T201
        page.block_thread()
    finally:
        engine.close()


def check_accounts(settings: Settings) -> None:
    """Raise SystemExit if those who may log in cannot be read."""
    try:
        read_accounts(settings)
    except BadAccount as error:
        raise SystemExit(f"app.py: {error}") from None


def check_hardware(settings: Settings) -> None:
    """Raise SystemExit if a Space has hardware that would shut it down."""
    if on_zerogpu() and settings.is_remote:
        raise SystemExit(
            f"app.py: with --engine {settings.engine} the model runs elsewhere, and ZeroGPU shuts down a Space "
            "without use for its GPU. Choose CPU hardware in the Space's settings, or leave CHAT_ENGINE unset."
        )


def choose_port(host: str, port: int) -> int:
    """Return `port`, or a free one if it is 0. Raises: SystemExit if it cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SystemExit(
                f"app.py: port {port} is taken. Stop what uses it, or choose another with --port."
            ) from None
        raise SystemExit(
            f"app.py: cannot listen on {host}, port {port}: {error}. Try another --host or --port."
        ) from None


if __name__ == "__main__":
    main()
