from __future__ import annotations

import pytest

from chat.terminal import markdown
from chat.terminal.markdown import GrowingMarkdown
from tests.emulator import Emulator, create_console

REPLY = """\
# Title
Text with `vector<int>` and vector<int>, $5 and $6, \\(x_1^2\\) and
a second line. <b>not bold</b>
\\[
 a_i * b_i * c
\\]

日本語のテキスト、絵文字🎉です。**太字** と[リンク](http://x.y/z) ![pic](http://p/q.png)

- one
- two
  - nested
1. a
1. b

```python
def f(x):
\treturn {"a": x}  # a comment that goes on and on and on and on and on and on to the edge

```
| a | b |
|---|--:|
| 1 | 22 |

> quote
* * *
Setext
---
end ~~gone~~ &lt;x&gt; \\*not\\*
"""


def texts(source: str, columns: int = 60) -> str:
    """Return the lines of a whole reply as they look without colours."""
    emulator = Emulator(columns, 100)
    console = create_console(emulator, columns)
    emulator.write("\n".join(line.text for line in GrowingMarkdown(console).lines(source)))
    return emulator.screen()


@pytest.mark.parametrize("columns", [1, 7, 20, 33, 60, 200])
def test_a_reply_that_grows_looks_at_the_end_as_one_that_came_whole(columns: int):
    console = create_console(Emulator(), columns)
    growing = GrowingMarkdown(console)
    for length in range(len(REPLY)):
        growing.lines(REPLY[:length])
    assert growing.lines(REPLY) == GrowingMarkdown(console).lines(REPLY)


def test_only_the_block_that_grows_is_laid_out_again(monkeypatch: pytest.MonkeyPatch):
    """G1, S10"""
    laid_out: list[int] = []

    class Counted(markdown.ReplyMarkdown):
        def __init__(self, source: str) -> None:
            laid_out.append(len(source))
            super().__init__(source)

    monkeypatch.setattr(markdown, "ReplyMarkdown", Counted)
    block = "A paragraph.\n\n"
    growing = GrowingMarkdown(create_console(Emulator()))
    for length in range(len(block), len(block) * 50):
        growing.lines((block * 50)[:length])
    assert max(laid_out) < 3 * len(block)


def test_no_line_is_wider_than_the_terminal():
    for columns in (20, 33, 60):
        assert all(line.cells <= columns for line in GrowingMarkdown(create_console(Emulator(), columns)).lines(REPLY))


@pytest.mark.parametrize(
    "text",
    [
        "vector<int>",
        "<think>",
        "<script>alert(1)</script>",
        "$5 and $6",
        r"\(x_1 * y_2 * z\)",
        "$$a_1^2 * b * c$$",
        "日本語、한국어 🎉",
        "snake_case_name",
    ],
)
def test_text_that_is_no_markdown_is_shown_as_it_is(text: str):
    """G2, G4"""
    assert texts(f"See {text} here.") == f"See {text} here."


def test_line_ends_are_kept():
    """G5"""
    assert texts("Roses are red,\nviolets are blue.") == "Roses are red,\nviolets are blue."


def test_code_keeps_its_indentation_and_can_be_copied_from_the_margin():
    assert texts("```python\ndef f():\n    return 1\n```") == "def f():\n    return 1"


def test_code_that_is_not_closed_yet_is_code():
    assert texts("Look:\n\n```python\nif a < b and *c*:") == "Look:\n\nif a < b and *c*:"


def test_links_and_pictures_show_where_they_lead():
    assert texts("[here](http://a.b/c)") == "here (http://a.b/c)"
    assert "http://a.b/c.png" in texts("![alt](http://a.b/c.png)")


def test_character_references_cannot_spell_an_escape_sequence():
    console = create_console(Emulator())
    drawn = "".join(line.text for line in GrowingMarkdown(console).lines("&#27;[2J &#x1b;[2J &#155;2J"))
    assert "\x1b[2J" not in drawn
    assert "\x9b" not in drawn


def test_other_line_separators_do_not_cut_a_block():
    source = "one\u2028two\x85three\n\n```\ncode\n```\nend"
    assert "end" in texts(source)
    assert texts(source).count("code") == 1


def test_bold_text_is_bold():
    emulator = Emulator()
    emulator.write(GrowingMarkdown(create_console(emulator)).lines("**Bold** plain")[0].text)
    assert emulator.styles("Bold").bold
    assert not emulator.styles("plain").bold
