"""What the measures ask, and what they make of the times at which the pieces come."""

import os
import threading

import pytest
import torch

from chat.bench import measures
from chat.bench.measures import DECODE, MEMORY, READ, Target, first_token, list_measures, measure, users
from chat.bench.report import Report
from chat.bench.settings import BenchSettings
from chat.bench.talks import Asker, Interrupted, Talk
from chat.engine.loading import LoadedModel
from chat.types import Chunk, GenerationFailed, GenerationParams, ModelInfo, Usage
from tests.engine.models import tiny_llama
from tests.fakes import FakeEngine

SETTINGS = BenchSettings(tokens=3, turns=3, users="1,4")


class FakeAsker(Asker):
    """Everybody's pieces come at the given seconds."""

    def __init__(self, *arrivals):
        super().__init__()
        self._arrivals = list(arrivals)
        self.asked = []

    def together(self, ask, prompts, tokens):
        self.asked.append((prompts, tokens))
        return [Talk(Usage(100, 0, tokens), 0.0, self._arrivals, "Yes.") for _ in prompts]


def run(name, asker):
    (what,) = (what for what in list_measures(SETTINGS) if what.name == name)
    return what.run(asker, None)


def test_decoding_is_measured_after_the_first_token():
    assert run("decode", FakeAsker(5.0, 5.5, 6.0)) == {DECODE: 2.0}


def test_a_reply_in_one_piece_has_no_decoding_speed():
    assert run("decode", FakeAsker(5.0)) == {}


def test_reading_is_measured_up_to_the_first_token():
    assert run("prompt", FakeAsker(0.5)) == {READ: 200.0}


def test_a_server_that_counts_no_tokens_has_no_reading_speed():
    asker = FakeAsker(0.5)
    asker.together = lambda *_: [Talk(Usage(), 0.0, [0.5])]
    assert run("prompt", asker) == {}


def test_each_turn_asks_with_everything_that_was_said_before():
    asker = FakeAsker(0.25, 1.0)
    assert run("3 turns", asker) == {first_token(turn): 0.25 for turn in (1, 2, 3)}
    turns = [prompts[0] for prompts, _ in asker.asked]
    assert [len(messages) for messages in turns] == [1, 3, 5]
    assert turns[2][:3] == turns[1]
    assert turns[2][3] == {"role": "assistant", "content": "Yes."}


def test_users_ask_different_things_and_their_worst_is_told():
    asker = FakeAsker(0.5, 1.0, 2.0)
    assert run("4 users: together", asker) == {
        users(4, "tokens/s"): 6.0,
        users(4, "median first token, s"): 0.5,
        users(4, "worst first token, s"): 0.5,
        users(4, "worst gap, s"): 1.0,
    }
    assert len({prompt[0]["content"] for prompt in asker.asked[0][0]}) == 4


def test_no_prompt_begins_as_an_earlier_one():
    """Else an engine that keeps what it has read would have nothing to read."""
    asker = FakeAsker(0.5, 1.0)
    for _ in range(2):
        for name in ("decode", "prompt", "3 turns", "4 users: together"):
            run(name, asker)
    firsts = [prompt[0]["content"] for prompts, _ in asker.asked for prompt in prompts if len(prompt) == 1]
    assert len({text.split(".")[0] for text in firsts}) == len(firsts)


def test_the_soak_goes_round_conversations_that_grow():
    asker = FakeAsker(0.5, 1.0)
    (soak,) = (what for what in list_measures(BenchSettings(soak=41)) if what.name == "soak, 41 turns")
    soak.run(asker, None)
    assert [len(asker.asked[turn][0][0]) for turn in (0, 19, 20, 40)] == [1, 1, 3, 5]


def test_users_of_an_engine_really_ask_at_once():
    everybody = threading.Barrier(3, timeout=30)
    engine = FakeEngine()
    asker = Asker()
    ask = asker.engine(engine)
    talks = asker.together(lambda messages, tokens: (everybody.wait(), ask(messages, tokens))[1], [[]] * 3, 5)
    assert [(talk.text, len(talk.arrivals)) for talk in talks] == [("Hello there.", 2)] * 3
    assert engine.params == [GenerationParams(max_new_tokens=5, temperature=0)] * 3


def test_a_stopped_asker_closes_its_streams():
    engine = FakeEngine(replies=[["Hello", threading.Event()]])
    asker = Asker()
    asker.stopped.set()
    with pytest.raises(Interrupted):
        asker.engine(engine)([], 5)
    assert engine.closed == [0]


def test_bare_generation_notes_when_each_token_is_there():
    model, tokenizer = tiny_llama()
    model.generation_config.suppress_tokens = list(model.generation_config.eos_token_id)
    loaded = LoadedModel(model, tokenizer, ModelInfo("tiny", "cpu", "float32", 512, GenerationParams()))
    talk = Asker().bare(loaded)([{"role": "user", "content": "Hello"}], 6)
    assert len(talk.arrivals) == talk.usage.completion_tokens == 6
    assert talk.started < talk.arrivals[0]
    assert talk.text


def test_the_memory_that_a_measure_takes_is_noticed():
    def take(asker, ask):
        taken = torch.ones(60 * 2**18)
        assert threading.Event().wait(0.3) is False
        return {"taken": float(taken[0])}

    target = Target("here", None, os.getpid())
    quiet = measure(Asker(), target, measures.Measure("quiet", lambda asker, ask: {}))
    loud = measure(Asker(), target, measures.Measure("loud", take))
    assert loud[MEMORY] - quiet[MEMORY] > 40


def test_a_report_shows_medians_and_of_the_memory_the_most():
    report = Report("tiny")
    for value in (1.0, 9.0, 2.0):
        report.add("direct", {DECODE: value, MEMORY: value})
    report.add("server", {READ: 5.0})
    assert report.figures == {"direct": {DECODE: 2.0, MEMORY: 9.0}, "server": {READ: 5.0}}
    assert report.rows == [DECODE, READ, MEMORY]


def test_an_error_names_itself_and_is_not_a_figure():
    engine = FakeEngine(replies=[["Hello", GenerationFailed("No.")]])
    with pytest.raises(GenerationFailed):
        Asker().engine(engine)([], 5)


def test_a_thought_counts_as_a_piece():
    engine = FakeEngine(replies=[[Chunk(thought="Hm"), "Yes"]])
    assert len(Asker().engine(engine)([], 5).arrivals) == 2
