"""Values with a few bytes deleted, changed or inserted; the same for the same seed."""

import random
from collections.abc import Iterator, Sequence

MAX_EDITS = 3
# What JSON and UTF-8 are sensitive to: one byte each, but for escapes of surrogates and for
# characters of several bytes, whole, cut short or never allowed.
PIECES = (
    *(bytes([byte]) for byte in b'"""\\\\{}[]:,\'/#-+.0159eEutrfnb '),
    *(bytes([byte]) for byte in (0x00, 0x01, 0x08, 0x09, 0x0A, 0x0D, 0x1E, 0x1F, 0x7F)),
    *(rb"\ud83d", rb"\uDE00", rb"\ud83d\ude00", rb"\u0000", rb"\u00e9", rb"\n", rb"\x"),
    *("é".encode(), "€".encode(), "😀".encode(), "\ufeff".encode(), "\u00a0".encode()),
    *(b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xff"),
)


def mutations(values: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Yield so many mutations of the values, in turn."""
    source = random.Random(seed)  # noqa: S311 - to be the same again
    for number in range(count):
        value = values[number % len(values)]
        for _ in range(source.randint(1, MAX_EDITS)):
            value = _edited(value, source)
        yield value


def _edited(value: bytes, source: random.Random) -> bytes:
    at = source.randint(0, len(value))
    replaced, inserted = source.choice(((1, b""), (1, None), (0, None)))
    piece = source.choice(PIECES) if inserted is None else inserted
    return value[:at] + piece + value[at + replaced :]
