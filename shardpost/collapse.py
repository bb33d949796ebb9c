"""Whether a result is plausible, before it leaves: a country that exists, counts that do not fall.

What is not is refused until a person says that it is meant.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from shardpost.errors import NEEDS_ATTENTION, ShardpostError, UsageError

# Of fewer, it is an ordinary day that all are gone: most of them may be one client's.
LEAST = 10
MOST_NAMED = 20


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


def unknown_country(country: str, known: Collection[str]) -> str:
    """Return that no exchange has a country, and which may have been meant; `known` are theirs."""
    by_lower = {name.casefold(): name for name in sorted(known)}
    nearest = get_close_matches(country.casefold(), by_lower, n=1)
    meant = f": did you mean {by_lower[nearest[0]]}?" if nearest else "."
    named = ", ".join(sorted(known)[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
    return f"country {country!r}: no exchange has it{meant} Their countries are {named}"


def require_known(country: str, known: Collection[str], *, advice: str) -> None:
    """Refuse a country that no exchange has, where any has one."""
    if known and country not in known:
        raise UsageError(f"{unknown_country(country, known)}. {advice}")


def require_same(country: str, before: str, number: int, known: Collection[str]) -> None:
    """Refuse another country than that of the snapshot before, of that number."""
    if country == before:
        return
    if country in known or not known:
        text = f"country {country!r}: snapshot {number} is of {before!r}"
    else:
        text = f"{unknown_country(country, known)}, and snapshot {number} is of {before!r}"
    raise UsageError(
        f"{text}. Correct SHARDPOST_COUNTRY; or change the country: `shardpost rebuild start"
        " --country …`, `rebuild diff` and `rebuild swap` show first whom it concerns, and"
        " --country-changed does it at once"
    )
