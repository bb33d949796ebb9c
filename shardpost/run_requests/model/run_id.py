"""The id of the Airflow run that a request gets: `request__<key>__<offset>-<milliseconds>`.

It is made from the run key and the winning request's offset and timestamp, so Airflow itself
rejects a second run of a request. The timestamp tells apart two requests of one offset, where the
topic was deleted and recreated.
"""

import re
from hashlib import sha256

PREFIX = "request__"  # unlike Airflow's own: scheduled__, manual__, backfill__, asset_triggered__
# A run id is part of file names: shorter than the 250 characters that Airflow takes.
LONGEST_KEY = 80
_KEPT = 40
_HASH = 32
# Of the characters that Airflow allows ([A-Za-z0-9_.~:+-]), those that a file name takes as well.
_OTHERS = re.compile(rb"[^A-Za-z0-9_.-]")


def run_id(key: str, offset: int, timestamp_ms: int) -> str:
    """Return the run's id; two requests never have the same."""
    return f"{PREFIX}{escaped(key)}__{offset}-{max(0, timestamp_ms)}"


def escaped(key: str) -> str:
    """Return the key in characters that Airflow allows, reversible up to LONGEST_KEY characters.

    Any other byte is `~` and two hexadecimal digits. A longer key ends in `~~` and a hash of it.
    """
    raw = key.encode(errors="surrogatepass")
    text = _OTHERS.sub(lambda match: b"~%02X" % match[0][0], raw).decode()
    if len(text) <= LONGEST_KEY:
        return text
    return f"{text[:_KEPT]}~~{sha256(raw).hexdigest()[:_HASH]}"
