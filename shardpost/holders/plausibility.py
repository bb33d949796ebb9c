"""What a compaction refuses before anybody sees its result; no JVM.

Its country, and counts that fall (collapse.py); a person may say that both are meant.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from shardpost import collapse
from shardpost.collapse import CollapseError
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.errors import UsageError
from shardpost.holders.model.view_tables import EXCHANGES
from shardpost.settings import Settings
from shardpost.shared_files import SharedFile

_COUNTRIES = "SELECT DISTINCT country FROM exchanges WHERE is_open AND country IS NOT NULL"
_WITHOUT = "SELECT key FROM exchanges WHERE is_open AND country IS NULL ORDER BY key"
ACCEPT = (
    "Nothing was published, and nothing is changed. Look for the producer of the last tombstones in"
    " the input topics; if they are meant, run it once with --accept-drop"
)
# A shared file: why the last compaction was refused.
REFUSED = "compaction-refused.txt"
MOST_NAMED = 20  # countries
CORRECT = "Correct SHARDPOST_COUNTRY; if it is meant, go on with --country-changed"


def countries(settings: Settings, snapshot: Snapshot) -> set[str]:
    """Return the countries that exchanges have."""
    if EXCHANGES.name not in snapshot.tables:
        return set()
    found = rows(settings, _COUNTRIES, at_snapshot(snapshot, EXCHANGES))
    return {row["country"] for row in found}


def without_country(settings: Settings, snapshot: Snapshot) -> list[str]:
    """Return the exchanges that have a record without a country: no position on them counts."""
    if EXCHANGES.name not in snapshot.tables:
        return []
    return [row["key"] for row in rows(settings, _WITHOUT, at_snapshot(snapshot, EXCHANGES))]


def require_country(settings: Settings, last: Snapshot, country: str) -> None:
    """Refuse a country that is not the one in force at the last snapshot."""
    wanted = last.country_now(country)
    if wanted != last.country:
        known = countries(settings, last)
        _require_same(wanted, last.country, last.number, known)


def unknown_country(country: str, known: Collection[str]) -> str:
    """Return that no exchange has a country, and which may have been meant; `known` are theirs."""
    by_lower = {name.casefold(): name for name in sorted(known)}
    nearest = get_close_matches(country.casefold(), by_lower, n=1)
    meant = f": did you mean {by_lower[nearest[0]]}?" if nearest else "."
    named = ", ".join(sorted(known)[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
    return f"country {country!r}: no exchange has it{meant} Their countries are {named}"


def _require_same(country: str, before: str, number: int, known: Collection[str]) -> None:
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


def require_exchange_in(
    country: str, settings: Settings, made: Snapshot, *, advice: str = CORRECT
) -> None:
    """Refuse a country that no exchange has, where any has one."""
    known = countries(settings, made)
    if known and country not in known:
        raise UsageError(f"{unknown_country(country, known)}. {advice}")


def require_no_collapse(settings: Settings, last: Snapshot, made: Snapshot) -> None:
    """Refuse a snapshot, not committed yet, with far fewer open positions or holders."""
    collapse.require_no_collapse(
        f"snapshot {made.number}",
        _counts(last.counts),
        _counts(made.counts),
        most=settings.max_drop,
        advice=ACCEPT,
    )


@contextmanager
def noting_refusal(settings: Settings) -> Iterator[None]:
    """Note why a compaction was refused, for doctor and watch, until one is not."""
    try:
        yield
    except (CollapseError, UsageError) as refusal:
        why = str(refusal)
        SharedFile(settings, REFUSED).change(lambda _: why)
        raise


def forget_refusal(settings: Settings) -> None:
    """Note that the last compaction was not refused."""
    SharedFile(settings, REFUSED).remove()


def refusal(settings: Settings) -> str | None:
    """Return why the last compaction was refused, None if it was not."""
    return SharedFile(settings, REFUSED).read()


def _counts(counts: Counts) -> dict[str, int]:
    return {"open positions": counts.positions, "holders": counts.holders}
