"""What a chat template takes, and where a reply ends by it, is found out by trying."""

import pytest

from chat.engine.reasoning import find_format
from chat.engine.template import ChatTemplate
from tests.engine.chat_templates import ALL, BLOCKS, CHATML, ROUNDS, STRICT
from tests.engine.models import byte_tokenizer


def template_for(source):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = source
    tokenizer.bos_token = tokenizer.eos_token
    return ChatTemplate(tokenizer, None, find_format(tokenizer))


def message(role, content):
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("source", "stop_texts"),
    [
        (CHATML, ()),
        (STRICT, ()),
        (ROUNDS, ("\n\n[Round",)),
        (CHATML.replace("<|im_end|>", "<|eot|>").replace("<|im_start|>", "<|role|>"), ("<|eot|>",)),
        ("{% for m in messages %}{{ m.role + ': ' + m.content + '\\n\\n' }}{% endfor %}assistant:", ("\n\nuser:",)),
        ("{% for m in messages %}{{ m.content + '\\n' }}{% endfor %}", ()),
        ("{{ raise_exception('Only one') if messages[1:] else messages[0].content }}", ()),
    ],
    ids=["special", "trimmed", "numbered", "unknown tokens", "plain", "blank", "single"],
)
def test_the_next_speakers_mark_is_a_stop_text_unless_it_is_a_special_token(source, stop_texts):
    """S16, C5"""
    assert template_for(source).stop_texts == stop_texts


def test_a_template_of_blocks_gets_blocks():
    assert (
        template_for(BLOCKS).write([message("user", "a")])[0] == template_for(CHATML).write([message("user", "a")])[0]
    )


@pytest.mark.parametrize("source", ALL.values(), ids=ALL)
@pytest.mark.parametrize("last", [[], [message("assistant", "c \n")]])
def test_the_tail_is_the_prompts_end(source, last):
    text, tail = template_for(source).write(
        [message("user", "a"), message("assistant", "b"), message("user", "c"), *last]
    )
    assert text.endswith(tail)


@pytest.mark.parametrize("source", ALL.values(), ids=ALL)
def test_the_messages_stay_as_they_are(source):
    messages = [message("system", "s"), message("assistant", ""), message("user", "a"), message("assistant", "b")]
    before = [m.copy() for m in messages]
    template_for(source).write(messages)
    assert messages == before
