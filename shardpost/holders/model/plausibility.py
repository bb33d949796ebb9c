"""A result with far fewer positions, holders or recipients than the last one is refused.

Unless a flag says that it is meant. What of a country is refused is in holders/countries.py.
"""

from collections.abc import Callable, Mapping

from shardpost.errors import NEEDS_ATTENTION, ShardpostError

# Counts below this are not checked: they can drop to 0 on a normal day.
LEAST = 10


class CollapseError(ShardpostError):
    """A result has so much less than the one before that a person has to confirm it."""

    exit_code = NEEDS_ATTENTION


def require_no_fall(
    what: str,
    before: Mapping[str, int],
    now: Mapping[str, int],
    *,
    most: float,
    advice: Callable[[], str],
) -> None:
    """Refuse counts, by name, that fall by more than a share; CollapseError names them all.

    Of fewer than LEAST, and of what there was no count of before, nothing is refused; with `most`
    1, nothing at all. `advice` returns what to do.
    """
    fallen = [
        f"{name} fall from {before[name]} to {count}"
        for name, count in now.items()
        if (before.get(name, 0) >= LEAST and before[name] - count > most * before[name])
    ]
    if fallen:
        raise CollapseError(
            f"{what}: {', '.join(fallen)}, by more than SHARDPOST_MAX_DROP={most:g} allows."
            f" {advice()}"
        )
