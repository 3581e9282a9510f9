"""Engines bigger than one machine: any OpenAI-compatible server, or the hub's inference providers."""

from __future__ import annotations

from chat.engine.remote.engine import RemoteEngine
from chat.engine.remote.server import Server, find_server

__all__ = ["RemoteEngine", "Server", "find_server"]
