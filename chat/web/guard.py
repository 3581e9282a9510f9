"""Text that Markdown shows as it stands: `vector<int>`, `&amp;`, tabs, `$$` in code."""

from __future__ import annotations

import re

_GUARD = "\0"

_FENCED = re.compile(r"^(?P<indent>[ \t>]*)(?P<rail>`{3,}|~{3,}).*?(?:\n[ \t>]*(?P=rail)|\Z)", re.DOTALL | re.MULTILINE)
_NOT_MATH = r'\$(?=\$)|\\(?=[\[\]()])|src="(?=/file)'  # the chat component rewrites src="/file
_IN_CODE = re.compile(_NOT_MATH)
_IN_PROSE = re.compile(
    rf"""
    (?=[`$\\<&!s])  # nothing below begins otherwise, and most text stops here
    (?: (?P<code> (?P<ticks>`+)(?!`) (?: (?!\n\s*\n). )*? (?<!`)(?P=ticks)(?!`) )
    | (?P<math> \$\$.+?\$\$ | \\\[(?:(?!\\\[).)+?\\\] | \\\((?:(?!\\\().)+?\\\) )
    | !(?=\[) # an image would be fetched from wherever it says
    | <(?=[a-zA-Z/!?])(?!https?://) | &(?=[#\w]+;) | {_NOT_MATH} )
    """,
    re.DOTALL | re.VERBOSE,
)
# Only in a paragraph: in a list, a leading tab says what belongs to which item.
_TABBED_PARAGRAPH = re.compile(r"^(?!\d+[.)]\s)[^\s>|#*+~`-].*(?:\n *\t.*)+", re.MULTILINE)
_LEADING_TAB = re.compile(r"\n *(?=\t)")


def guard(text: str) -> str:
    """Return `text` with NULs where Markdown would swallow or change something of it.

    They part a `<` from its letter, a tab from the line's start; an HTML parser drops them, so nobody sees
    them, and page.js drops them from what is copied.
    """
    parts, end = [], 0
    for fenced in _FENCED.finditer(text):
        parts += [_guard_prose(text[end : fenced.start()]), _guard_fenced(fenced)]
        end = fenced.end()
    return "".join([*parts, _guard_prose(text[end:])])


def unguard(text: str) -> str:
    """Return the text that `guard` was given."""
    return text.replace(_GUARD, "")


def _guard_fenced(fenced: re.Match[str]) -> str:
    code = _IN_CODE.sub(_add_guard, fenced[0])
    # A deeper fence stands in a list, and must stay there.
    return _guard_tabs(code) if len(fenced["indent"].expandtabs()) < 4 else code


def _guard_prose(text: str) -> str:
    if "\t" in text:
        text = _TABBED_PARAGRAPH.sub(lambda paragraph: _guard_tabs(paragraph[0]), text)
    return _IN_PROSE.sub(_guard_piece, text)


def _guard_piece(piece: re.Match[str]) -> str:
    if piece["code"]:
        return _IN_CODE.sub(_add_guard, piece[0])
    return piece[0] if piece["math"] else _add_guard(piece)


def _guard_tabs(text: str) -> str:
    return _LEADING_TAB.sub(_add_guard, text)


def _add_guard(match: re.Match[str]) -> str:
    return match[0] + _GUARD
