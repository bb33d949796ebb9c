"""Text of others, before it is printed or mailed: nothing in it may steer a terminal.

`single_line` is for headers, cells and log lines: no header can be injected by it.
"""

import re

# Control characters but tab and newline, and those that turn the direction of a line.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_REPLACED = "\ufffd"


def harmless(text: str) -> str:
    """Return text of one or more lines; what could steer a terminal becomes U+FFFD."""
    return _STEERING.sub(_REPLACED, text)


def one_line(text: str) -> str:
    """Return text of a single line: a newline becomes U+FFFD as well."""
    return harmless(text).replace("\n", _REPLACED)


# With those that turn the direction of a line, and so make it say something else.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def single_line(text: str, longest: int) -> str:
    """Return text as one line: control characters become a space, and the end is cut off.

    `longest` is a number of characters.
    """
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= longest else line[: longest - 1] + "…"
