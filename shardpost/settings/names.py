"""Names of variables that are no setting, and which setting may have been meant."""

from collections.abc import Collection
from difflib import get_close_matches

from shardpost.settings.prefixes import CLIENT_PREFIX, PREFIX

SEE = "see .env.example for all settings"
_KAFKA = f"{PREFIX}KAFKA_"


def unknown_name(name: str, known: Collection[str]) -> str:
    """Return what is wrong with a variable that is none of the known ones."""
    nearest = get_close_matches(name.upper(), known, n=1, cutoff=0.8)
    if nearest:
        return f"unknown setting {name}: did you mean {nearest[0]}?"
    if name.startswith(_KAFKA):
        client = CLIENT_PREFIX + name.removeprefix(_KAFKA)
        return f"unknown setting {name}: settings of Kafka's client are {client} ({SEE})"
    return f"unknown setting {name}: {SEE}"
