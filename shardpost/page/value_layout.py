"""Keys and values of records as people read them: JSON laid out, text, or bytes in hexadecimal.

JSON is laid out token by token, so that numbers, escapes and fields that stand there twice are
shown as they were written.
"""

import json
import re
from dataclasses import dataclass, replace

from shardpost.errors import harmless, single_line
from shardpost.holders.readable_values import Readable
from shardpost.kafka.records import utf8_text

# Characters of a value in a list, and on a record's own page. All of it can be downloaded.
IN_LIST, ON_OWN_PAGE = 2_000, 200_000
SUMMARY = 160
BYTES_OF_LINE = 16
# In characters of a dump; the line of 16 bytes has about 80.
BYTES_PER_CHARACTER = 5
# Larger ones than that many times what is shown of them are not parsed: most of them is not shown.
MOST_PARSED = 16
INDENT = "  "
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True)
class Layout:
    """What a value is, in a word; its text, bounded; its size in bytes, None where it is null."""

    kind: str
    text: str
    size: int | None
    is_cut: bool = False


def laid_out(raw: bytes | None, most: int) -> Layout:
    """Lay out a value in about `most` characters at most."""
    if raw is None:
        return Layout("null", "", None)
    size = len(raw)
    if (text := utf8_text(raw)) is None:
        shown = raw[: most // BYTES_PER_CHARACTER]
        return Layout("bytes", dump(shown), size, len(shown) < size)
    if size <= most * MOST_PARSED and is_json(text):
        pretty = indented(text, most)
        return Layout("JSON", pretty[:most], size, len(pretty) > most)
    return Layout("text", text[:most], size, len(text) > most)


def laid_out_by_schema(value: Readable, most: int) -> Layout:
    """Lay out a value that may name a schema, likewise; its size is that of its own bytes."""
    layout, own = laid_out(value.shown, most), value.value
    return replace(layout, kind=value.kind or layout.kind, size=None if own is None else len(own))


def is_json(text: str) -> bool:
    """Tell whether text is an object or an array of JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def indented(text: str, most: int) -> str:
    """Return valid JSON with a line for each value; it may end once it is longer than that."""
    parts: list[str] = []
    depth = size = 0
    before = ""
    for part in (match[0] for match in _TOKEN.finditer(text)):
        if part in "}]":
            depth -= 1
        is_first = before in ("{", "[", ",")
        is_last = part in "}]" and before not in ("{", "[")
        if (is_first and part not in "}]") or is_last:
            parts.append("\n" + INDENT * depth)
        parts.append(": " if part == ":" else part)
        size += len(part) + depth
        if part in "{[":
            depth += 1
        if size > most:
            break
        before = part
    return "".join(parts)


def dump(raw: bytes) -> str:
    """Return bytes as lines of 16: offset, hexadecimal, and what of it is printable ASCII."""
    lines = []
    for at in range(0, len(raw), BYTES_OF_LINE):
        line = raw[at : at + BYTES_OF_LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{at:08x}  {line.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def key_text(raw: bytes | None) -> str | None:
    """Return a key as a page shows it."""
    return None if raw is None else harmless(raw.decode(errors="replace"))


def summary(raw: bytes | None) -> str:
    """Return a value in one line."""
    if raw is None:
        return "null"
    if not raw:
        return "(empty)"
    text = utf8_text(raw)
    shown = f"bytes {raw[:SUMMARY].hex(' ')}" if text is None else text[: 4 * SUMMARY]
    return single_line(shown, SUMMARY)
