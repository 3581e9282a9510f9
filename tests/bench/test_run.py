"""One whole run, on a tiny model: in this process, through the app, and against another server."""

import json

import pytest

from chat.bench import main, run
from chat.bench.measures import DECODE, MEMORY, Measure
from chat.types import GenerationFailed, InvalidRequest
from tests.engine.models import tiny_llama
from tests.upstream import Upstream


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    for part in tiny_llama(max_position_embeddings=8192):
        part.save_pretrained(folder)
    return str(folder)


def test_one_table_for_the_bare_model_each_engine_the_app_and_another_server(folder, tmp_path, capsys):
    file, picture = tmp_path / "figures.json", tmp_path / "figures.svg"
    with Upstream(replies=(("Hello", 0.05, " there."),)) as other:
        flags = ["--model", folder, "--tokens", "4", "--turns", "2", "--users", "1,2", "--against", other.url]
        assert main([*flags, "--json", str(file), "--plot", str(picture)]) == 0
        assert {body["model"] for body in other.asked} == {"big/model"}
    report = json.loads(file.read_text())
    names = ["generate", "direct", "batched", "server", f"127.0.0.1:{other.port}"]
    assert list(report["figures"]) == names
    assert all(figures["1 user: tokens/s"] > 0 for figures in report["figures"].values())
    assert report["figures"]["generate"][DECODE] > 0
    assert all("2 users: tokens/s" in report["figures"][name] for name in names[1:])
    assert report["figures"]["server"][MEMORY] > 100
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("generate", "batched", "first token at turn 2, s", "peak memory, MB"))
    assert "<svg" in picture.read_text()


def test_what_fails_is_left_out_with_its_reason_and_ctrl_c_shows_what_is_there(folder, capsys, monkeypatch):
    errors = [GenerationFailed("It is too warm."), InvalidRequest("It is too long.")]

    def fail(asker, ask):
        if errors:
            raise errors.pop(0)
        return {"third": 33.0}

    def interrupted(asker, ask):
        raise KeyboardInterrupt

    measures = [Measure("warmth", fail), Measure("figure", lambda *_: {"figure": 42.0}), Measure("", interrupted)]
    monkeypatch.setattr(run, "list_measures", lambda _: measures)
    assert main(["--model", folder]) == 0
    shown = capsys.readouterr().out
    assert "generate, warmth: It is too warm." in shown
    assert "direct, warmth: It is too long." in shown
    assert shown.count("33.0") == 1
    assert shown.count("42.0") == 2
    assert "Ended early" in shown


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_measured(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["--plot", "figures.png"]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_one_line(capsys):
    assert main(["--model", "./nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "1,x", "", "1,"])
def test_numbers_of_users_that_make_no_sense_are_refused(value, capsys):
    with pytest.raises(SystemExit):
        main(["--users", value])
    assert "users" in capsys.readouterr().err
