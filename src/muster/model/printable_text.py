"""Text of others as it is shown: in conditions, events, logs, tables and error messages.

Names, labels and annotations are whatever their owner wrote: line breaks that forge a second log line, escape sequences for a
terminal, marks that reverse what a reader sees. Here they become visible text. Applied once, where text leaves the program.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with each character that does not print (controls, line breaks, format characters, lone surrogates) as its escape
    sequence, such as `\\n`, `\\x1b` and `\\u202e`."""
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """The same for text of several lines, such as a traceback. Lines after the first are indented: none looks like a new entry."""
    return "\n  ".join(printable(line) for line in text.split("\n"))


def printable_json(encoded: bytes) -> bytes:
    """The same for a JSON document: it decodes to the same values. Outside of its strings all characters are printable ASCII."""
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    text = encoded.decode()
    return encoded if text.isprintable() else "".join(map(_shown_in_json, text)).encode()


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _shown_in_json(character: str) -> str:
    """Characters beyond the basic plane are two escapes, a surrogate pair."""
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
