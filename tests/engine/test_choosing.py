"""Tokens are drawn as `model.generate` draws them."""

import random
from collections import Counter

import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from chat.engine import choosing
from chat.engine.choosing import Choice, draw_tokens

PLAIN = LogitsProcessorList()


def expected_shares(scores, temperature, top_k, top_p):
    """What transformers' own warpers leave of the scores."""
    scores = TemperatureLogitsWarper(temperature)(None, scores)
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    return TopPLogitsWarper(top_p)(None, scores).softmax(-1)[0]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.5, 0, 0.9), (2.0, 5, 1.0), (1.5, 20, 0.7), (1.0, 0, 0.01)]
)
@pytest.mark.parametrize("looked_at", [8, 1024], ids=["beyond the likeliest", "among the likeliest"])
def test_tokens_come_as_often_as_the_usual_warpers_say(monkeypatch, temperature, top_k, top_p, looked_at):
    monkeypatch.setattr(choosing, "_LIKELIEST", looked_at)
    scores = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)) * 2
    shares = expected_shares(scores, temperature, top_k, top_p)
    choice, draws = Choice(PLAIN, False, temperature, top_k, top_p, random.Random(0)), 4000
    counts = Counter(draw_tokens(scores.expand(draws, -1), [choice] * draws).tolist())
    assert {token for token in counts if shares[token] == 0} == set()
    for token, share in enumerate(shares.tolist()):
        assert counts[token] / draws == pytest.approx(share, abs=0.03)


def test_rows_keep_to_their_own_choices():
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0]])
    one_of_one, one_of_two = (Choice(PLAIN, False, 5.0, top_k, 1.0, random.Random(0)) for top_k in (1, 2))
    tokens = draw_tokens(scores.expand(200, -1), [one_of_one, one_of_two] * 100)
    assert set(tokens[::2].tolist()) == {0}
    assert set(tokens[1::2].tolist()) == {0, 1}


def test_the_same_numbers_are_drawn_for_the_same_seed():
    scores = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    drawn = [
        draw_tokens(scores.expand(20, -1), [choice] * 20).tolist()
        for choice in (Choice(PLAIN, False, random=random.Random(seed)) for seed in (1, 1, 2))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
