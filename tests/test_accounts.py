from __future__ import annotations

import subprocess
import sys

import pytest

import app
from chat.accounts import BadAccount, hash_password, matches, read_accounts
from chat.settings import Settings


def make_account(name: str, password: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "chat", "password", name]
    return subprocess.run(command, input=f"{password}\n", capture_output=True, text=True)


@pytest.mark.parametrize("password", ["right", "with:colon", " spaces ", "zweiter-schlüssel", "密码", "\udcff"])
def test_a_hash_knows_its_password_and_no_other(password):
    hashed = hash_password(password)
    assert matches(password, hashed)
    assert not matches(password + "x", hashed)
    assert not matches("", hashed)
    assert hash_password(password) != hashed


def test_the_command_makes_lines_for_the_file(tmp_path):
    made = make_account("ann", "with:colon ")
    assert "with" not in made.stdout
    file = tmp_path / "accounts"
    file.write_text(f"# who may come\n\n{made.stdout}")
    accounts = read_accounts(Settings(auth_file=str(file), auth=["bob:right"]))
    assert matches("with:colon ", accounts["ann"])
    assert matches("right", accounts["bob"])


@pytest.mark.parametrize(("name", "password"), [("", "x"), ("a:b", "x"), ("#a", "x"), ("ann", "")])
def test_the_command_refuses_what_cannot_be_an_account(name, password):
    made = make_account(name, password)
    assert made.returncode == 2
    assert made.stdout == ""


@pytest.mark.parametrize("account", ["secret", ":secret", "secret:", " :secret"])
def test_a_bad_account_is_explained_without_its_password(account, capsys):
    with pytest.raises(SystemExit, match="NAME:PASSWORD") as stopped:
        app.main(["--auth", account])
    assert "secret" not in str(stopped.value) + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "line",
    [
        "ann:right",
        "ann:scrypt:16384:8:1:AAAA:",
        "ann:scrypt:16384:8:1:AAAA:?",
        "ann:scrypt:1073741824:8:1:AAAA:AAAA",
        "ann:scrypt:3:8:1:AAAA:AAAA",
        "ann:scrypt:0:8:1:AAAA:AAAA",
    ],
)
def test_a_bad_line_of_the_file_is_named_by_its_number(tmp_path, line):
    file = tmp_path / "accounts"
    file.write_text(f"\n{line}\n")
    with pytest.raises(BadAccount, match="line 2") as refused:
        read_accounts(Settings(auth_file=str(file)))
    assert "right" not in str(refused.value)


def test_a_missing_file_is_explained(tmp_path):
    with pytest.raises(BadAccount, match="cannot be read"):
        read_accounts(Settings(auth_file=str(tmp_path / "missing")))


def test_passwords_are_never_printed():
    settings = Settings(auth=["ann:secret"])
    assert "secret" not in f"{settings!r} {settings} {settings.model_dump_json()}"
