"""Fingerprints of errors: the same for errors that differ only in values.

Values are numbers, ids, what is quoted, and what comes after `, found`.

spark/letters_table_rows.py computes the same in the JVM; a test holds one against the other.
"""

import re
from zlib import crc32

# What follows is a colon or nothing at all: Java and Python disagree about `$`.
CLASS = r"^(?:[A-Za-z0-9_$]+[.])*([A-Za-z0-9_$]+)(?::|(?![\s\S]))"
# What was found, values in quotes, UUIDs, hexadecimal and other numbers; first what all of these
# begin with, since most characters are none of it.
VARIABLE = (
    r"(?=[,\"'0-9a-fA-F])"
    r"(?:, found [\s\S]*|\"[^\"]*\"|'[^']*'|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|0x[0-9a-fA-F]+|[0-9]+)"
)
LENGTH = 300
NO_CLASS = "error"

_CLASS, _VARIABLE = re.compile(CLASS), re.compile(VARIABLE)


def error_class(error: str) -> str:
    """Return the class that the error's text begins with, without its module; or `error`."""
    found = _CLASS.match(_first_line(error))
    return found[1] if found else NO_CLASS


def fingerprint(error: str) -> str:
    """Return `Class-` and eight hexadecimal digits of the message without what varies in it."""
    line = _first_line(error)
    return f"{error_class(line)}-{crc32(_VARIABLE.sub('#', line).encode(errors='replace')):08x}"


def _first_line(error: str) -> str:
    return error.split("\n", 1)[0][:LENGTH]
