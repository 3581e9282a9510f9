"""Text that cannot drive the terminal."""

from __future__ import annotations

_HARMLESS = {ord("\n"), ord("\t")}
_PICTURES = {
    # Unicode has pictures of the C0 controls; the C1 controls, a second spelling of escape sequences, have none.
    **{code: 0x2400 + code for code in range(0x20) if code not in _HARMLESS},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    # The line end of other systems; alone it would let a line write over itself.
    ord("\r"): None,
}


def visible(text: str) -> str:
    """Show control characters as pictures, so that text from outside can neither move the cursor nor more."""
    return text.translate(_PICTURES)
