"""The names of letters: their keys, in a form that a person can read and type.

A key that is no letter id may be any bytes. spark/letters_table_rows.py computes the same in the
JVM; a test holds one against the other.
"""

import base64
import binascii
import re
from contextlib import suppress
from hashlib import sha256

# An id of ours is far shorter: the name of a topic has at most 249 characters.
MAX_KEY_BYTES = 1_000
# Control characters, and those that change the direction of a line.
UNPRINTABLE = r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
BASE64, SHA256 = "base64 ", "sha256 "

_UNPRINTABLE = re.compile(UNPRINTABLE)


def name_of(key: bytes | None) -> str:
    """Return a key as text; in base64 where it is none; its SHA-256 where it is empty or long."""
    key = key or b""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        return SHA256 + sha256(key).hexdigest()
    with suppress(UnicodeDecodeError):
        text = key.decode()
        if not _UNPRINTABLE.search(text):
            return text
    return BASE64 + base64.b64encode(key).decode()


def keys_of(name: str) -> set[bytes]:
    """Return the keys of at most MAX_KEY_BYTES that have a name: itself, and what it encodes."""
    found = {name.encode()}
    if name.startswith(BASE64):
        with suppress(binascii.Error, ValueError):
            found.add(base64.b64decode(name.removeprefix(BASE64), validate=True))
    return found
