"""The fingerprint of an error, by which letters are counted, and its class.

It is the same for errors that differ only in values: numbers, ids, what is quoted, and what comes
after `, found`.
"""

import re
from functools import lru_cache
from zlib import crc32

_CLASS = re.compile(r"(?:[A-Za-z0-9_$]+[.])*([A-Za-z0-9_$]+)(?::|\Z)")
# What was found, values in quotes, UUIDs, hexadecimal and other numbers; first what all of these
# begin with, since most characters are none of it.
_VARIABLE = re.compile(
    r"(?=[,\"'0-9a-fA-F])"
    r"(?:, found [\s\S]*|\"[^\"]*\"|'[^']*'|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|0x[0-9a-fA-F]+|[0-9]+)"
)
_LENGTH = 300
NO_CLASS = "error"


def error_class(error: str) -> str:
    """Return the class that the error's text begins with, without its module; or `error`."""
    match = _CLASS.match(_first_line(error))
    return match[1] if match else NO_CLASS


@lru_cache(maxsize=1_000)
def fingerprint(error: str) -> str:
    """Return `Class-` and eight hexadecimal digits of the message without what varies in it."""
    line = _first_line(error)
    return f"{error_class(line)}-{crc32(_VARIABLE.sub('#', line).encode(errors='replace')):08x}"


def _first_line(error: str) -> str:
    return error.split("\n", 1)[0][:_LENGTH]
