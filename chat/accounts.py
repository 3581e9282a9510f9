"""Who may log in: names, and what can be kept of their passwords."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterator
from pathlib import Path

from chat.settings import Settings
from chat.types import ChatError

_COST = (2**14, 8, 1)
"""n, r and p of scrypt: 16 MiB and some 50 ms of a core for each password tried."""
_MAX_COST = (2**20, 32, 16)
_MEMORY = 2**28


class BadAccount(ChatError):
    """An account cannot be read. The text holds nothing of its password."""


def read_accounts(settings: Settings) -> dict[str, str]:
    """Return the hash of each name's password: those of --auth-file, then those of --auth. Raises: BadAccount."""
    accounts = dict(_read_file(settings.auth_file)) if settings.auth_file else {}
    for account in settings.auth:
        name, _, password = account.get_secret_value().partition(":")
        if not name.strip() or not password:
            raise BadAccount("--auth is not NAME:PASSWORD. Give a name, a colon and a password.")
        accounts[name.strip()] = hash_password(password)
    return accounts


def hash_password(password: str) -> str:
    """Return what to keep of a password: `scrypt:n:r:p:salt:hash`, the last two in base64."""
    salt = secrets.token_bytes(16)
    parts = (base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, *_COST)))
    return ":".join(["scrypt", *map(str, _COST), *parts])


def matches(password: str, hashed: str) -> bool:
    """Tell whether `hashed` was made of `password`, in a time that tells nothing else."""
    cost, salt, expected = _parse(hashed)
    return hmac.compare_digest(_scrypt(password, salt, *cost), expected)


def _read_file(path: str) -> Iterator[tuple[str, str]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadAccount(f"--auth-file cannot be read: {error}. Give a file that you may read.") from None
    for number, line in enumerate(lines, 1):
        name, _, hashed = line.partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        try:
            _parse(hashed)
        except ValueError:
            raise BadAccount(
                f"{path}, line {number}, is no account. Make one with `python -m chat password NAME`."
            ) from None
        yield name.strip(), hashed.strip()


def _parse(hashed: str) -> tuple[tuple[int, int, int], bytes, bytes]:
    """Return the cost, the salt and the hash. Raises: ValueError."""
    kind, n, r, p, salt, expected = hashed.strip().split(":")
    cost = (int(n), int(r), int(p))
    is_payable = all(0 < part <= most for part, most in zip(cost, _MAX_COST, strict=True))
    if kind != "scrypt" or not is_payable or cost[0] & (cost[0] - 1) or 128 * cost[0] * cost[1] >= _MEMORY:
        raise ValueError("no scrypt hash that can be checked here")
    decoded = base64.b64decode(expected, validate=True)
    if not decoded:
        raise ValueError("an empty hash matches nothing")
    return cost, base64.b64decode(salt, validate=True), decoded


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)
