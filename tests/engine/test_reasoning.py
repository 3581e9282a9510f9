"""Thought and answer come apart the same way wherever a reply is cut, and no character is lost."""

import random

import pytest

from chat.engine.reasoning import ThoughtSplitter, find_format, split
from chat.engine.thought_formats import COHERE, COMMON_TAGS, GEMMA, HARMONY, TAGGED, tagged
from tests.engine.chat_templates import THINKER
from tests.engine.models import TURN_END, byte_tokenizer

MAGISTRAL = tagged("[THINK]", "[/THINK]", *COMMON_TAGS, anywhere=True)

REPLIES = {
    "think": (TAGGED, "<think>\nr\n</think>\n\nanswer", "r", "answer"),
    "think without blanks": (TAGGED, "<think>r</think>answer", "r", "answer"),
    "thinking": (TAGGED, "\n<thinking> r </thinking> answer", "r", "answer"),
    "paragraphs": (TAGGED, "<think>\na\n\n b \n</think>\nc\n\n d \n", "a\n\n b", "c\n\n d \n"),
    "empty thought": (TAGGED, "<think>\n\n</think>\n\nanswer", "", "answer"),
    "no thought": (TAGGED, "  plain\n\n\tanswer \n", "", "  plain\n\n\tanswer \n"),
    "comparison": (TAGGED, "a < b, <thin> and </think", "", "a < b, <thin> and </think"),
    "comparison in a thought": (TAGGED, "<think>a < b </ c</think>d", "a < b </ c", "d"),
    "tag in an answer": (TAGGED, "Write `<think>x</think>` so", "", "Write `<think>x</think>` so"),
    "tag in an answer behind a thought": (
        TAGGED,
        "<think>r</think>`<think>` or </think>",
        "r",
        "`<think>` or </think>",
    ),
    "other pair's end": (TAGGED, "<think>a</thinking>b</think>c", "a</thinking>b", "c"),
    "unclosed": (TAGGED, "<think>r\n\n", "r\n\n", ""),
    "half a mark at the end": (TAGGED, "<think>r</thin", "r</thin", ""),
    "half a mark alone": (TAGGED, " <thin", "", " <thin"),
    "only blanks": (TAGGED, "\n ", "", "\n "),
    "magistral": (MAGISTRAL, "[THINK]r[/THINK]answer [1] [/THINK]", "r", "answer [1] "),
    "harmony": (
        HARMONY,
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y<|return|>",
        "x",
        "y",
    ),
    "harmony with a tool's message": (
        HARMONY,
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>y",
        "x\n\n{}",
        "y",
    ),
    "harmony without channels": (HARMONY, "just an answer", "", "just an answer"),
    "harmony without a thought": (HARMONY, "<|channel|>final<|message|>a final analysis", "", "a final analysis"),
    "harmony cut in a header": (HARMONY, "<|channel|>analysis<|message|>x<|end|><|start|>assis", "x", ""),
    "gemma": (GEMMA, "<|channel>thought\nx\n<channel|>y", "x", "y"),
    "gemma thinking twice": (GEMMA, "a <|channel>thought\nx<channel|>b", "x", "a \n\nb"),
    "gemma cut in a mark": (GEMMA, "<|channel>", "", ""),
    "cohere": (COHERE, "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>y<|END_RESPONSE|>", "x", "y"),
    "cohere without a thought": (COHERE, "<|START_RESPONSE|>y<|END_RESPONSE|>", "", "y"),
}


def run(splitter, pieces):
    """Feed the pieces one by one and finish; return the whole thought and the whole answer."""
    results = [*map(splitter.feed, pieces), splitter.finish()]
    return "".join(thought for thought, _ in results), "".join(answer for _, answer in results)


def replies():
    return pytest.mark.parametrize(("thoughts", "text", "thought", "answer"), REPLIES.values(), ids=REPLIES)


@replies()
def test_a_reply_is_split(thoughts, text, thought, answer):
    """S13, S14, G3"""
    assert split(thoughts, text) == (thought, answer)


@replies()
def test_every_cut_gives_the_same_parts(thoughts, text, thought, answer):
    """S13, S15"""
    for cut in range(len(text) + 1):
        assert run(ThoughtSplitter(thoughts), [text[:cut], text[cut:]]) == (thought, answer)
    assert run(ThoughtSplitter(thoughts), text) == (thought, answer)


@replies()
def test_many_cuts_give_the_same_parts(thoughts, text, thought, answer):
    """S13"""
    chance = random.Random(text)
    for _ in range(50):
        cuts = sorted(chance.choices(range(len(text) + 1), k=chance.randint(2, 8)))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert run(ThoughtSplitter(thoughts), pieces) == (thought, answer)


@replies()
def test_no_more_than_a_mark_is_held_back(thoughts, text, thought, answer):
    """S13"""
    longest = max(map(len, thoughts.marks))
    for end in range(len(text) + 1):
        splitter = ThoughtSplitter(thoughts)
        splitter.feed(text[:end])
        assert len("".join(splitter.finish()).strip()) < longest


@pytest.mark.parametrize("mark", sorted(TAGGED.marks | HARMONY.marks | GEMMA.marks | COHERE.marks))
def test_a_splitter_without_a_format_changes_nothing(mark):
    assert run(ThoughtSplitter(None), f" {mark}x{mark} ") == ("", f" {mark}x{mark} ")


def test_a_comparison_goes_out_at_once():
    """S13"""
    splitter = ThoughtSplitter(TAGGED)
    splitter.feed("<think>a ")
    assert splitter.feed("<") == ("", "")
    assert splitter.feed(" b") == (" < b", "")
    splitter.feed("</think>c ")
    assert splitter.feed("<") == ("", "<")


class TestTail:
    """What the prompt already holds of the reply."""

    def test_a_thought_that_the_template_opens_begins_at_once(self):
        """S13"""
        assert run(ThoughtSplitter(TAGGED, "<think>\n"), "\nr\n</think>\n\nanswer") == ("r", "answer")

    def test_a_thought_that_the_template_closes_is_over(self):
        assert run(ThoughtSplitter(TAGGED, "<think>\n\n</think>\n\n"), "<think>answer") == ("", "<think>answer")

    def test_a_continued_thought_goes_on_with_its_blanks(self):
        """T9"""
        assert run(ThoughtSplitter(TAGGED, "<think>\nI wonder\n"), "  if</think>so") == ("  if", "so")

    def test_a_continued_answer_opens_no_thought(self):
        """T9"""
        assert run(ThoughtSplitter(TAGGED, "The tag `"), "<think>` opens") == ("", "<think>` opens")

    def test_an_answer_that_ends_in_a_tag_opens_no_thought(self):
        assert run(ThoughtSplitter(TAGGED, "The tag is <think>"), " it opens") == ("", " it opens")

    def test_a_mark_that_was_cut_is_completed_and_not_shown_again(self):
        assert run(ThoughtSplitter(TAGGED, "<think>r</thi"), "nk>answer") == ("", "answer")
        assert run(ThoughtSplitter(TAGGED, "<think>r</thi"), "s is it") == ("s is it", "")

    def test_gemma_goes_on_behind_an_empty_thought(self):
        assert run(ThoughtSplitter(GEMMA, "<|channel>thought\n<channel|>"), "y") == ("", "y")


class TestFindFormat:
    """What can be known of a model's marks."""

    def test_the_common_tags_serve_where_nothing_is_known(self):
        """S13"""
        assert find_format(byte_tokenizer()).states == TAGGED.states

    @pytest.mark.parametrize(
        ("token", "family"), [("<|channel|>", HARMONY), ("<|channel>", GEMMA), ("<|START_THINKING|>", COHERE)]
    )
    def test_a_family_is_known_by_its_token(self, token, family):
        """S14"""
        tokenizer = byte_tokenizer()
        tokenizer.add_special_tokens({"extra_special_tokens": [token, TURN_END]})
        found = find_format(tokenizer)
        assert found.states == family.states
        assert found.tokens == {token}

    def test_the_chat_template_shows_its_tags(self):
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = THINKER.replace("think>", "ponder-thinking>")
        found = find_format(tokenizer)
        assert (found.opening, found.closing) == ("<ponder-thinking>\n", "\n</ponder-thinking>\n\n")
        assert split(found, "<ponder-thinking>x</ponder-thinking>y") == ("x", "y")
        assert split(found, "<think>x</think>y") == ("x", "y")

    def test_a_role_before_a_thought_is_no_tag(self):
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = (
            "{% for message in messages %}<{{ message.role }}>"
            "{{ message.reasoning_content }}<end>{{ message.content }}{% endfor %}"
        )
        assert find_format(tokenizer).states == TAGGED.states

    @pytest.mark.parametrize("field", ["reasoning_content", "thinking"])
    def test_a_response_template_names_the_marks(self, field):
        tokenizer = byte_tokenizer()
        tokenizer.response_template = {
            "fields": {field: {"open": ["<plan>", "<p>"], "close": "</plan>"}, "content": {}}
        }
        found = find_format(tokenizer)
        assert split(found, "<plan>x</plan>y <plan> z") == ("x", "y <plan> z")

    @pytest.mark.parametrize("tag", ["[THINK]", "<thought>", "Here are my reasoning steps:"])
    def test_rare_tags_are_known_by_the_template(self, tag):
        tokenizer = byte_tokenizer()
        tokenizer.chat_template += f"{{# {tag} #}}"
        thought, answer = split(find_format(tokenizer), f"{tag}x{find_format(tokenizer).closing}y")
        assert (thought, answer) == ("x", "y")

    def test_tags_that_are_special_tokens_count_anywhere(self):
        tokenizer = byte_tokenizer()
        tokenizer.add_special_tokens({"extra_special_tokens": ["[THINK]", "[/THINK]"]})
        found = find_format(tokenizer)
        assert found.tokens == {"[THINK]", "[/THINK]"}
        assert split(found, "a[THINK]x[/THINK]b") == ("x", "a\n\nb")
