"""The installation by given settings: one object for equal settings, as a run has one."""

from shardpost.installation import Installation
from shardpost.settings import Settings

_made: dict[str, Installation] = {}
# Asked hundreds of times by one object; these are kept, so that no other gets its id.
_known: dict[int, tuple[Settings, Installation]] = {}


def installed(settings: Settings) -> Installation:
    """Return the installation by those settings."""
    if id(settings) not in _known:
        variables = repr(sorted(settings.environ().items()))
        _known[id(settings)] = settings, _made.setdefault(variables, Installation(settings))
    return _known[id(settings)][1]


def forget_admins() -> None:
    """Have each ask its next question by a new client, and close those that it has."""
    for made in _made.values():
        made.kafka.forget_admin()
