"""Markdown as a model writes it, laid out while it grows."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from rich import markdown
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.styled import Styled
from rich.syntax import Syntax

from chat.terminal.region import Line, lay_out

_FORMULA = re.compile(r"\\\(.+?\\\)|\\\[.+?\\\]|\$\$.+?\$\$", re.DOTALL)


def _keep_formula(state: StateInline, silent: bool) -> bool:
    """Take a formula as plain text: its backslashes, stars and underscores are no Markdown."""
    match = _FORMULA.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        state.pending += match.group()
    state.pos = match.end()
    return True


@cache
def _parser() -> MarkdownIt:
    """Return a parser that shows HTML as it is written, and the addresses of pictures too."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")
    parser.inline.ruler.before("escape", "formula", _keep_formula)
    return parser


class _Code(markdown.CodeBlock):
    """Code without frame or margin, so that it can be copied from the screen."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme="ansi_dark", background_color="default", word_wrap=True)


class _Heading(markdown.Heading):
    """A heading that begins at the margin, whatever its level."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class ReplyMarkdown(markdown.Markdown):
    """A reply's Markdown: line ends are kept, and links show where they lead."""

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, source: str) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = source
        self.parsed = _parser().parse(source)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


def _blocks(source: str) -> list[str]:
    """Cut Markdown into its blocks; no further text can change any but the last."""
    # A line that is not complete may still turn out to belong to the block before it.
    lines = re.split(r"(?<=\n)", source)
    tokens = _parser().parse("".join(lines[:-1]))
    starts = [token.map[0] for token in tokens if token.level == 0 and token.map]
    cuts = [0, *starts[1:], len(lines)]
    return ["".join(lines[start:end]) for start, end in pairwise(cuts)]


class GrowingMarkdown:
    """Markdown that grows at its end; only the last block is laid out again."""

    def __init__(self, console: Console, style: str = "") -> None:
        self._console, self._style = console, style
        self._finished: list[Line] = []
        self._length = 0

    def lines(self, source: str) -> list[Line]:
        """Return the lines of `source`, which begins with every source given before."""
        *finished, last = _blocks(source[self._length :])
        for block in finished:
            self._finished = self._with(block)
            self._length += len(block)
        return self._with(last)

    def _with(self, block: str) -> list[Line]:
        """Return the finished lines and below them, after a blank one, those of `block`."""
        lines = lay_out(self._console, Styled(ReplyMarkdown(block), self._style))
        gap = [Line("", 0)] if lines and self._finished else []
        return [*self._finished, *gap, *lines]
