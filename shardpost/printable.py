"""Text of others, before it is printed: nothing in it may steer a terminal."""

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
