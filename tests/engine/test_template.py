"""What a chat template takes, and where a reply ends by it, is found out by trying."""

import pytest

from chat.engine.reasoning import find_format
from chat.engine.template import ChatTemplate
from tests.engine.chat_templates import ALL, BLOCKS, BRACKETS, CHATML, ROUNDS
from tests.engine.models import byte_tokenizer


def template_for(source):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = source
    tokenizer.bos_token = tokenizer.eos_token
    return ChatTemplate(tokenizer, None, find_format(tokenizer))


def message(role, content):
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("source", "end_tokens", "stop_texts"),
    [
        (CHATML, ("<|im_end|>",), ()),
        (BRACKETS, ("<|endoftext|>",), ()),
        (ROUNDS, (), ("\n\n[Round",)),
        (CHATML.replace("<|im_end|>", "<|eot|>").replace("<|im_start|>", "<|role|>"), (), ("<|eot|>",)),
        ("{% for m in messages %}{{ m.role + ': ' + m.content + '\\n\\n' }}{% endfor %}assistant:", (), ("\n\nuser:",)),
        ("{% for m in messages %}{{ m.content + '\\n' }}{% endfor %}", (), ()),
        ("{{ raise_exception('Only one') if messages[1:] else messages[0].content }}", (), ()),
        ("{{ messages[-1].content }}", (), ()),
    ],
    ids=["special", "behind a blank", "numbered", "unknown tokens", "plain", "blank", "single", "newest"],
)
def test_the_end_of_a_reply_is_read_off_the_template(source, end_tokens, stop_texts):
    """S16, C5"""
    template = template_for(source)
    assert (template.end_tokens, template.stop_texts) == (end_tokens, stop_texts)


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
