"""The countries of exchanges, and which values of SHARDPOST_COUNTRY a run refuses.

It refuses a country that no exchange has, and another one than before, unless a flag confirms it.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table, Version
from shardpost.errors import UsageError
from shardpost.holders.model.view_tables import EXCHANGES
from shardpost.settings import Settings

_COUNTRIES = "SELECT DISTINCT country FROM exchanges WHERE is_open AND country IS NOT NULL"
_WITHOUT = "SELECT key FROM exchanges WHERE is_open AND country IS NULL ORDER BY key"
MOST_NAMED = 20  # countries
CORRECT = "Correct SHARDPOST_COUNTRY; if it is intended, go on with --country-changed"


def countries(settings: Settings, snapshot: Snapshot) -> set[str]:
    """Return the countries that exchanges have."""
    if EXCHANGES.name not in snapshot.tables:
        return set()
    found = rows(settings, _COUNTRIES, at_snapshot(snapshot, EXCHANGES))
    return {row["country"] for row in found}


def exchanges_in(settings: Settings, at: Mapping[Table, Version], country: str) -> set[str]:
    """Return the exchanges in that country, by their table at a version."""
    codes = rows(settings, "SELECT key, country FROM exchanges WHERE is_open", at)
    return {row["key"] for row in codes if row["country"] == country}


def counting_exchanges(settings: Settings, snapshot: Snapshot) -> set[str]:
    """Return the exchanges whose positions count in a snapshot."""
    if EXCHANGES.name not in snapshot.tables:
        return set()
    return exchanges_in(settings, at_snapshot(snapshot, EXCHANGES), snapshot.country)


def without_country(settings: Settings, snapshot: Snapshot) -> list[str]:
    """Return the exchanges that have a record without a country: no position on them counts."""
    if EXCHANGES.name not in snapshot.tables:
        return []
    return [row["key"] for row in rows(settings, _WITHOUT, at_snapshot(snapshot, EXCHANGES))]


def require_country(settings: Settings, last: Snapshot, country: str) -> None:
    """Refuse a country that is not the one in force at the last snapshot."""
    wanted = last.country_now(country)
    if wanted == last.country:
        return
    known, in_force = countries(settings, last), f"snapshot {last.number} is of {last.country!r}"
    if wanted in known or not known:
        text = f"country {wanted!r}: {in_force}"
    else:
        text = f"{unknown_country(wanted, known)}, and {in_force}"
    raise UsageError(
        f"{text}. Correct SHARDPOST_COUNTRY; or change the country: `shardpost rebuild start"
        " --country …`, `rebuild diff` and `rebuild swap` show first whom it concerns, and"
        " --country-changed does it at once"
    )


def unknown_country(country: str, known: Collection[str]) -> str:
    """Return that no exchange has a country, and which may have been meant; `known` are theirs."""
    by_lower = {name.casefold(): name for name in sorted(known)}
    nearest = get_close_matches(country.casefold(), by_lower, n=1)
    meant = f": did you mean {by_lower[nearest[0]]}?" if nearest else "."
    named = ", ".join(sorted(known)[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
    return f"country {country!r}: no exchange has it{meant} Their countries are {named}"


def require_exchange_in(
    country: str, settings: Settings, made: Snapshot, *, advice: str = CORRECT
) -> None:
    """Refuse a country that no exchange has, where any has one."""
    known = countries(settings, made)
    if known and country not in known:
        raise UsageError(f"{unknown_country(country, known)}. {advice}")
