from __future__ import annotations

import pytest

from chat.web.guard import guard, unguard


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("vector<int>", "vector<|int>"),
        ("</b> <!-- x --> <?php", "<|/b> <|!-- x --> <|?php"),
        ("a < b <= c <3", "a < b <= c <3"),
        ("<https://example.com>", "<https://example.com>"),
        ("R&amp;D &#60; A&B & c;", "R&|amp;D &|#60; A&B & c;"),
        ("$5 and $6", "$5 and $6"),
        ("a lone $$ or \\( or \\]", "a lone $|$ or \\|( or \\|]"),
        ("$$x < y$$ \\(a\\) \\[b\n\\]", "$$x < y$$ \\(a\\) \\[b\n\\]"),
        ("![a](https://example.com/b.png)", "!|[a](https://example.com/b.png)"),
        ('src="/file/x"', 'src="|/file/x"'),
        ("`<b> $$x$$`", "`<b> $|$x$|$`"),
        ("``a ` <b>`` <b>", "``a ` <b>`` <|b>"),
        ("`no\n\nspan <b>`", "`no\n\nspan <|b>`"),
        ("```c\n\ta <b> \\(\n```\n<b>", "```c\n|\ta <b> \\|(\n```\n<|b>"),
        ("```\n$$ and <b>", "```\n$|$ and <b>"),
        ("~~~\n``` $$\n~~~\n<b>", "~~~\n``` $|$\n~~~\n<|b>"),
        ("1. one\n\t```\n\tx\n\t```", "1. one\n\t```\n\tx\n\t```"),
        ("all: x\n\tgcc <b>\n  \tls", "all: x\n|\tgcc <|b>\n  |\tls"),
        ("- one\n\t- two", "- one\n\t- two"),
        ("1. one\n\ttwo", "1. one\n\ttwo"),
    ],
)
def test_what_markdown_would_swallow_is_parted(text, guarded):
    """G2, G4, G5. A | stands for the mark."""
    assert guard(text).replace("\0", "|") == guarded
    assert unguard(guard(text)) == text


@pytest.mark.parametrize("piece", ["`", "```\n", "\\(", "$$", "<", "a:\n\tb\n", "~~~", " \t"])
def test_nothing_makes_it_slow(piece):
    """G1, S10: a pattern that tried every end from every beginning would not come back before the time-out."""
    text = piece * 20_000
    assert unguard(guard(text)) == text
