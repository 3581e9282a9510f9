"""Models from before chat templates: base models, tokenizers without a Rust core, encoder-decoders."""

import contextlib

import pytest
import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from chat.engine.direct import DirectEngine
from chat.engine.generation import settle_generation
from chat.engine.loading import LoadedModel, read_chat_template
from chat.settings import Settings
from chat.types import GenerationParams, InvalidRequest, ModelInfo
from tests.engine.models import byte_tokenizer, sentencepiece_tokenizer, tiny_t5

GREEDY = GenerationParams(max_new_tokens=60, temperature=0)
QUESTION = [{"role": "user", "content": "What is it?"}]


def gpt2_for(tokenizer, **generation):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=len(tokenizer),
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        model = GPT2LMHeadModel(config).eval()
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, **generation)
    return model


@contextlib.contextmanager
def engine_for(model, tokenizer):
    settle_generation(model, tokenizer)
    info = ModelInfo("tiny", "cpu", "float32", 512, GenerationParams(), is_base=not tokenizer.chat_template)
    with contextlib.closing(DirectEngine(LoadedModel(model, tokenizer, info), Settings())) as engine:
        yield engine


def say(model, tokenizer, text):
    """Let the model write exactly `text`, then end."""
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    written = iter(ids)

    def force(module, args, logits):
        # Only generate asks for a token; the pieces of a prompt are read before it does.
        logits[:, -1] = -1e4
        logits[:, -1, next(written, ids[-1])] = 1e4

    return model.lm_head.register_forward_hook(force)


def run(engine, prompt, params=GREEDY):
    *chunks, last = engine.stream(prompt, params)
    return "".join(chunk.text for chunk in chunks), last


def bare(model, tokenizer, prompt, **options):
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=20, do_sample=False, **options)
    new = out[0] if model.config.is_encoder_decoder else out[0, ids["input_ids"].shape[1] :]
    return tokenizer.decode(new, skip_special_tokens=True)


def base_tokenizer():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    return tokenizer


def test_a_base_model_answers_a_transcript_and_stops_where_the_person_would_speak():
    """C5"""
    tokenizer = base_tokenizer()
    model = gpt2_for(tokenizer)
    with engine_for(model, tokenizer) as engine:
        prompt = engine._preparer.prepare(QUESTION, GREEDY).prompt
        assert tokenizer.decode(prompt.input_ids) == "User: What is it?\nAssistant:"
        # The first token of these goes to the pass that reads the prompt.
        say(model, tokenizer, " A cat.\nUser: And that?\nAssistant: A dog.")
        text, last = run(engine, QUESTION)
    assert "User" not in text
    assert text.endswith(" cat.")
    assert last.finish_reason == "stop"


def test_a_base_model_continues_a_text_past_every_mark_of_a_chat():
    """C5"""
    tokenizer = base_tokenizer()
    model = gpt2_for(tokenizer)
    with engine_for(model, tokenizer) as engine:
        say(model, tokenizer, "x upon\nUser: a time <think>")
        text, last = run(engine, "Once")
    assert text.endswith("upon\nUser: a time <think>")
    assert last.finish_reason == "stop"


def test_a_named_template_ends_a_reply_where_the_next_speaker_begins():
    tokenizer = base_tokenizer()
    tokenizer.chat_template = read_chat_template("chatglm")
    model = gpt2_for(tokenizer)
    with engine_for(model, tokenizer) as engine:
        say(model, tokenizer, "东京。 Paris.\n\n[Round 2]\n\n问：And Japan?")
        text, last = run(engine, QUESTION)
    assert text.endswith(" Paris.")
    assert last.finish_reason == "stop"


def test_forbidden_words_of_the_model_are_never_written():
    tokenizer = base_tokenizer()
    model = gpt2_for(tokenizer)
    free = bare(model, tokenizer, "Once upon")
    forbidden = tokenizer.encode(free[:1], add_special_tokens=False)
    model = gpt2_for(tokenizer, bad_words_ids=[forbidden])
    with engine_for(model, tokenizer) as engine:
        text, _ = run(engine, "Once upon", GREEDY.model_copy(update={"max_new_tokens": 20}))
    assert free[:1] not in text


def test_a_pad_token_that_is_the_end_token_makes_no_warning(caplog, recwarn):
    """C10"""
    tokenizer = base_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    with engine_for(gpt2_for(tokenizer), tokenizer) as engine:
        run(engine, "Once upon")
    assert not caplog.records
    assert not recwarn.list


def test_a_tokenizer_without_a_rust_core_streams_what_it_decodes():
    """S8: as rinna/japanese-gpt2-medium, whose tokenizer also lower-cases what it reads."""
    tokenizer = sentencepiece_tokenizer()
    tokenizer.chat_template = None
    tokenizer.do_lower_case = True
    model = gpt2_for(tokenizer)
    text = "吾輩は猫である。 The capital"
    expected = bare(model, tokenizer, text)
    with engine_for(model, tokenizer) as engine:
        streamed, _ = run(engine, text, GREEDY.model_copy(update={"max_new_tokens": 20}))
    assert streamed.strip() == expected.strip()


def test_an_encoder_decoder_streams_from_its_first_word_on():
    """S11: its decoder starts from a pad token, which is no part of the reply."""
    model, tokenizer = tiny_t5(seed=2)
    expected = bare(model, tokenizer, "What is it?")
    assert expected
    with engine_for(model, tokenizer) as engine:
        text, last = run(engine, QUESTION, GREEDY.model_copy(update={"max_new_tokens": 20}))
    assert text == expected
    assert "<pad>" not in text
    assert last.usage.completion_tokens > 0


def test_an_encoder_decoder_cannot_go_on_with_a_reply():
    model, tokenizer = tiny_t5()
    with engine_for(model, tokenizer) as engine, pytest.raises(InvalidRequest, match="Retry"):
        engine.stream([*QUESTION, {"role": "assistant", "content": "It"}], GREEDY)
