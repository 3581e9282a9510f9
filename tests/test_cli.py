from __future__ import annotations

import json
import os
import subprocess
import sys

REPLY = json.dumps([["Hello ", "there,\n", "日本 🎉\x1b[2J."]])


def chat(*arguments: str, replies: str = REPLY, stdin: bytes | int = subprocess.DEVNULL) -> subprocess.CompletedProcess:
    """Run the program with a scripted engine."""
    given = {"stdin": stdin} if isinstance(stdin, int) else {"input": stdin}
    # A locale that cannot write the reply.
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "tests.fake_chat", replies, *arguments]
    return subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False, **given)


def test_a_question_prints_its_reply_and_nothing_else():
    done = chat("question")
    assert done.stdout.decode() == "Hello there,\n日本 🎉\x1b[2J.\n"
    assert done.stderr == b""
    assert done.returncode == 0


def test_text_on_standard_input_is_the_question():
    assert chat(replies='[["ECHO"]]', stdin="質問".encode()).stdout.decode() == "質問\n"


def test_text_on_standard_input_stands_below_the_question():
    assert chat("Translate:", replies='[["ECHO"]]', stdin=b"some text\n").stdout == b"Translate:\n\nsome text\n"


def test_no_question_at_all_is_an_error():
    done = chat()
    assert done.stdout == b""
    assert done.stderr == b"There is no question. Give it as an argument or on standard input.\n"
    assert done.returncode == 1


def test_an_error_is_one_line_on_standard_error():
    done = chat("question", replies='[["Half a", {"error": "The model broke.\\nTry again."}]]')
    assert done.stdout == b"Half a\n"
    assert done.stderr == b"The model broke. Try again.\n"
    assert done.returncode == 1


def test_a_bad_setting_is_refused_before_a_model_is_loaded():
    done = chat("question", "--temperature", "9", replies="[]")
    assert b"temperature: '9' is not allowed" in done.stderr
    assert done.returncode == 2


def test_json_gives_one_object():
    done = chat("question", "--json")
    fields = json.loads(done.stdout)
    assert fields["reply"] == "Hello there,\n日本 🎉\x1b[2J."
    assert fields["thought"] == ""
    assert fields["finish_reason"] == "stop"
    assert fields["usage"]["completion_tokens"] == 3
    assert done.stdout.count(b"\n") == 1


def test_a_closed_pipe_ends_it_quietly():
    replies = json.dumps([["word "] * 10_000])
    program = [sys.executable, "-m", "tests.fake_chat", replies, "question"]
    with subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout.read(20) == b"word word word word "
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 0


def test_help_needs_neither_torch_nor_gradio():
    code = (
        "import sys\nfrom chat.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(' '.join({'torch', 'transformers', 'gradio'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.stderr == b""
    assert b"--temperature" in done.stdout
    assert b"--port" not in done.stdout
