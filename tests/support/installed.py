"""The installation by given settings: one object for equal settings, as a run has one."""

from shardpost.installation import Installation
from shardpost.settings import Settings

_made: dict[str, Installation] = {}


def installed(settings: Settings) -> Installation:
    """Return the installation by those settings."""
    return _made.setdefault(repr(sorted(settings.environ().items())), Installation(settings))


def forget_admins() -> None:
    """Have each ask its next question by a new client, and close those that it has."""
    for made in _made.values():
        made.kafka.forget_admin()
