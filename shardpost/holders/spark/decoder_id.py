"""Which decoder made the rows of a history: an id that is another one after each change to it."""

import pkgutil
from hashlib import sha256
from importlib.metadata import version

# What a record becomes is said by these modules of `shardpost.holders`, and by Spark.
MODULES = ("model/fields.py", "spark/decoding.py")


def decoder_with(former: str | None) -> str | None:
    """Return the id of a history that `former` made, once rows are added; None if it is of two."""
    return former if former == decoder_id() else None


def decoder_id() -> str:
    """Return the id of the decoder of this process: of its modules' text, and Spark's version.

    The text is that which they had when they were imported: a run that goes on while an update is
    installed decodes as before. A change that changes no row, such as of a comment, gives another
    id too.
    """
    return _ID


def id_now() -> str:
    """Return the id of the decoder that is installed now."""
    found = sha256(version("pyspark").encode())
    for path in MODULES:
        text = pkgutil.get_data("shardpost.holders", path)
        if text is None:
            raise FileNotFoundError(f"shardpost/holders/{path}: expected the text of a module")
        found.update(sha256(text).digest())
    return found.hexdigest()[:16]


_ID = id_now()
