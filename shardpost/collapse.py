"""The fall that refuses a result before it leaves: far fewer positions, holders or recipients.

A person may say that it is meant. What a compaction refuses besides is in holders/plausibility.py.
"""

from collections.abc import Mapping

from shardpost.errors import NEEDS_ATTENTION, ShardpostError

# Of fewer, it is an ordinary day that all are gone: most of them may be one client's.
LEAST = 10


class CollapseError(ShardpostError):
    """A result has so much less than the one before that a person has to confirm it."""

    exit_code = NEEDS_ATTENTION


def require_no_collapse(
    what: str, before: Mapping[str, int], now: Mapping[str, int], *, most: float, advice: str
) -> None:
    """Refuse counts, by name, that fall by more than a share; CollapseError names them all.

    Of fewer than LEAST, and of what there was no count of before, nothing is refused; with `most`
    1, nothing at all.
    """
    fallen = [
        f"{name} fall from {before[name]} to {count}"
        for name, count in now.items()
        if (before.get(name, 0) >= LEAST and before[name] - count > most * before[name])
    ]
    if fallen:
        raise CollapseError(
            f"{what}: {', '.join(fallen)}, by more than SHARDPOST_MAX_DROP={most:g} allows."
            f" {advice}"
        )
