"""Text from records and from mail servers, made fit for one line: no header can be injected."""

import re

# With those that turn the direction of a line, and so make it say something else.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def single_line(text: str, longest: int) -> str:
    """Return text as one line: control characters become a space, and the end is cut off.

    `longest` is a number of characters.
    """
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= longest else line[: longest - 1] + "…"
