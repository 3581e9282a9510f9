from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from chat.engine.loading import read_chat_template
from chat.engine.prompt import PromptEncoder
from chat.engine.template import read_shipped
from chat.types import Message, ModelLoadError
from tests.engine.models import byte_tokenizer, sentencepiece_tokenizer

SYSTEM: Message = {"role": "system", "content": "Be brief."}
TALK: list[Message] = [
    {"role": "user", "content": "Hi <b>\n"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]
ALPACA = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
    "detailed, and polite answers to the user's questions. "
)

WRITTEN = {
    "chatml": (
        "<|im_start|>user\nHi <b>\n<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    ),
    "chatglm": "[Round 1]\n\n问：Hi <b>\n\n\n答：Hello.\n\n[Round 2]\n\n问：Bye\n\n答：",
    "llama2": "[INST] Hi <b>\n [/INST] Hello. </s>[INST] Bye [/INST]",
    "alpaca": (
        f"{ALPACA}### Instruction:\nHi <b>\n\n\n### Response:\nHello.\n\n### Instruction:\nBye\n\n### Response:\n"
    ),
    "vicuna": f"{VICUNA}USER: Hi <b>\n ASSISTANT: Hello.</s>USER: Bye ASSISTANT:",
}
BEGUN_WITH_SYSTEM = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi",
    "chatglm": "Be brief.\n\n[Round 1]\n\n问：Hi",
    "llama2": "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi",
    "alpaca": "Be brief.\n\n### Instruction:\nHi",
    "vicuna": "Be brief. USER: Hi",
}
NAMES = list(WRITTEN)


def tokenizer_with(name: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer that has a start and an end token, and reads this template."""
    tokenizer = sentencepiece_tokenizer()
    tokenizer.chat_template = read_shipped(name)
    return tokenizer


def write(name: str, messages: list[Message]) -> str:
    return str(tokenizer_with(name).apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_is_written_in_the_formats_own_way(name: str):
    assert write(name, TALK) == "<s>" + WRITTEN[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_system_text_has_its_place(name: str):
    """C4"""
    assert write(name, [SYSTEM, *TALK]).startswith("<s>" + BEGUN_WITH_SYSTEM[name])


@pytest.mark.parametrize("name", NAMES)
def test_there_is_one_start_token(name: str):
    """C7"""
    tokenizer = tokenizer_with(name)
    ids = PromptEncoder(tokenizer, 4096).encode([SYSTEM, *TALK], 100).input_ids
    assert ids.count(tokenizer.bos_token_id) == 1
    assert ids[0] == tokenizer.bos_token_id


@pytest.mark.parametrize("name", NAMES)
def test_a_tokenizer_without_a_start_token_can_use_it(name: str):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = read_shipped(name)
    ids = PromptEncoder(tokenizer, 4096).encode(TALK, 100).input_ids
    assert tokenizer.decode(ids) == WRITTEN[name].replace("</s>", tokenizer.eos_token)


@pytest.mark.parametrize("text", ["once upon", " a time"])
@pytest.mark.parametrize("name", NAMES)
def test_a_reply_can_be_continued(name: str, text: str):
    """T9"""
    tokenizer = tokenizer_with(name)
    reply: Message = {"role": "assistant", "content": text}
    written = tokenizer.apply_chat_template([*TALK, reply], tokenize=False, continue_final_message=True)
    assert written.endswith(text)
    ids = PromptEncoder(tokenizer, 4096).encode([*TALK, reply], 100).input_ids
    assert tokenizer.decode(ids).endswith(text)


@pytest.mark.parametrize(
    ("name", "stop_texts"),
    [
        ("chatglm", ("\n\n[Round",)),
        ("alpaca", ("\n\n### Instruction:",)),
        ("llama2", ()),
        ("vicuna", ()),
        ("chatml", ()),
    ],
)
def test_a_reply_ends_before_the_next_speakers_mark_where_no_token_ends_it(name: str, stop_texts: tuple[str, ...]):
    """S12, S16"""
    assert PromptEncoder(tokenizer_with(name), 4096).stop_texts == stop_texts


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_chosen_by_its_name(name: str):
    assert read_chat_template(name) == read_shipped(name)


def test_a_template_may_be_a_file(tmp_path: Path):
    file = tmp_path / "own.jinja"
    file.write_text("{{ messages }}")
    assert read_chat_template(str(file)) == "{{ messages }}"


def test_a_name_that_is_neither_lists_what_there_is():
    with pytest.raises(ModelLoadError, match=r"no chat template chatlm: no file, and none of alpaca, chatglm, chatml"):
        read_chat_template("chatlm")
