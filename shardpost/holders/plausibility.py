"""What is refused as implausible, unless a flag confirms it; the countries of exchanges.

Refused are a SHARDPOST_COUNTRY that no exchange has, another one than before, and a result with far
fewer positions, holders or recipients than the last one. A person who corrects a value hears what
would become of it.
"""

import json
from collections.abc import Callable, Collection, Mapping

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import LONGEST_EXCHANGE, MOST_UNKNOWN_KEPT, Snapshot, UnknownExchanges
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table, Version
from shardpost.errors import NEEDS_ATTENTION, ShardpostError, UsageError, WrongArgumentError
from shardpost.holders.inputs import mapped_now, mappings_of
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.fields import first_problem
from shardpost.holders.model.view_tables import EXCHANGES, INPUTS
from shardpost.installation import Installation
from shardpost.wording import counted, meant

_KNOWN = "SELECT key, country FROM exchanges WHERE is_open AND country IS NOT NULL"
_UNKNOWN = f"""
SELECT u.exchange, u.n, CAST(SUM(u.n) OVER () AS BIGINT) AS total FROM (
  SELECT left(o.exchange, {LONGEST_EXCHANGE}) AS exchange, COUNT(*) AS n
  FROM (SELECT p.exchange FROM positions p WHERE p.is_open) o
  LEFT ANTI JOIN ({_KNOWN}) e ON o.exchange = e.key
  GROUP BY 1
) u
ORDER BY u.n DESC, u.exchange LIMIT {MOST_UNKNOWN_KEPT}
"""  # noqa: S608 - constants
MOST_NAMED = 20  # countries
CORRECT = "Correct SHARDPOST_COUNTRY, or continue with --country-changed if it is intended"


def known_exchanges(tables: Tables, at: Mapping[Table, Version]) -> dict[str, str]:
    """Return {exchange: its country} by the table of exchanges at a version."""
    return {row["key"]: row["country"] for row in rows(tables, _KNOWN, at)}


def exchanges_in(country: str, known: Mapping[str, str]) -> set[str]:
    """Return the exchanges in that country, of {exchange: its country}."""
    return {code for code, one in known.items() if one == country}


def known_at(tables: Tables, snapshot: Snapshot) -> dict[str, str]:
    """Return {exchange: its country} at a snapshot; nothing where that has no exchanges."""
    if EXCHANGES.name not in snapshot.tables:
        return {}
    return known_exchanges(tables, at_snapshot(snapshot, EXCHANGES))


def count_unknown(tables: Tables, at: Mapping[Table, Version]) -> UnknownExchanges:
    """Count open positions on exchanges without a country, by both tables at their versions."""
    found = rows(tables, _UNKNOWN, at)
    total = found[0]["total"] if found else 0
    return UnknownExchanges(total, {row["exchange"]: row["n"] for row in found})


def unknown_of(tables: Tables, snapshot: Snapshot) -> dict[str, str]:
    """Return {exchange: what is wrong} of those without a country that open positions are on."""
    named = snapshot.counts.unknown.named
    known = known_at(tables, snapshot) if named else {}
    return {
        code: f"{counted(count, 'open position')}: {why_unknown(code, known)}"
        for code, count in named.items()
    }


def why_unknown(exchange: str, known: Collection[str]) -> str:
    """Return that an exchange has no country, and which of those known may have been meant."""
    return f"exchange {exchange!r} has no record with a Country{meant(exchange, known)}"


def require_inputs(installation: Installation, last: Snapshot) -> None:
    """Refuse another SHARDPOST_INPUTS than the one by which a snapshot's records are decoded."""
    if mapped_now(installation) != last.inputs:
        raise UsageError(
            f"SHARDPOST_INPUTS: the records of snapshot {last.number} were decoded by another one,"
            f" {last.inputs or 'none: as plain JSON'}. Correct it; or decode all records by the new"
            " one: `shardpost rebuild start`, `rebuild diff` and `rebuild swap` show the affected"
            " clients first, while --inputs-changed applies it to new records alone"
        )


def problem_of(installation: Installation, topic: str, value: bytes) -> str | None:
    """Return what the next compaction would do with a bad value; None for a good value."""
    for name, inputs in INPUTS.items():
        if topic == installation.kafka.topic(name):
            mapping = mappings_of(installation).get(name)
            if mapping and mapping.format != "json":
                return None
            if why := first_problem(value, () if mapping else inputs.fields):
                return f"would reject it again: {why}"
            last = snapshots.newest(installation.tables) if name == "positions" else None
            if last is None or mapping:  # what is mapped to what is known by Spark
                return None
            exchange, known = json.loads(value)["Exchange"], known_at(installation.tables, last)
            if exchange in known:
                return None
            return f"would count the position for nobody: {why_unknown(exchange, known)}"
    return None


def require_country(tables: Tables, last: Snapshot, country: str) -> None:
    """Refuse a country that is not the one in force at the last snapshot."""
    wanted = last.country_now(country)
    if wanted == last.country:
        return
    known = {*known_at(tables, last).values()}
    in_force = f"snapshot {last.number} is for {last.country!r}"
    if wanted in known or not known:
        text = f"country {wanted!r}: {in_force}"
    else:
        text = f"{unknown_country(wanted, known)}, and {in_force}"
    raise UsageError(
        f"{text}. Correct SHARDPOST_COUNTRY; or change the country: `shardpost rebuild start"
        " --country …`, `rebuild diff` and `rebuild swap` show the affected clients first, while"
        " --country-changed applies it at once"
    )


def unknown_country(country: str, known: Collection[str]) -> str:
    """Return that no exchange has a country, and which country may be meant, of those `known`."""
    nearest = meant(country, known) or "."
    named = ", ".join(sorted(known)[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
    return f"country {country!r}: no exchange has it{nearest} Their countries are {named}"


def require_exchange_in(
    country: str, tables: Tables, made: Snapshot, *, advice: str = CORRECT
) -> None:
    """Refuse a country that no exchange has, where any has one."""
    known = {*known_at(tables, made).values()}
    if known and country not in known:
        kind = UsageError if advice == CORRECT else WrongArgumentError
        raise kind(f"{unknown_country(country, known)}. {advice}")


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


def require_plausible(
    installation: Installation, last: Snapshot | None, made: Snapshot, asked: CompactionRequest
) -> None:
    """Refuse a snapshot before it is committed, unless that was asked for.

    One of a country that no exchange has, and one with far fewer open positions or holders.
    """
    if last is None and not asked.country_changed:
        require_exchange_in(made.country, installation.tables, made)
    if last is None or asked.accept_drop:
        return
    before, now = (
        {"open positions": counts.positions, "holders": counts.holders}
        for counts in (last.counts, made.counts)
    )
    require_no_fall(
        f"snapshot {made.number}",
        before,
        now,
        most=installation.settings.max_drop,
        advice=lambda: _advice(installation, last, made),
    )


def _advice(installation: Installation, last: Snapshot, made: Snapshot) -> str:
    """Return where to look for the cause of lost holders or positions, and how to continue."""
    before, now = (
        exchanges_in(one.country, known_at(installation.tables, one)) for one in (last, made)
    )
    lost = ", ".join(map(repr, sorted(before - now)[:MOST_NAMED]))
    causes = []
    if lost:
        topic, of = installation.topic("exchanges"), made.country
        causes.append(f"No longer in {of!r}: {lost}; check their last records in {topic}.")
    if made.counts.unknown.unknown_positions > last.counts.unknown.unknown_positions:
        causes.append(f"There are {made.counts.unknown}.")
    if made.counts.positions < last.counts.positions or not causes:
        topic = installation.topic("positions")
        causes.append(f"Find the producer of the last tombstones and changes in {topic}.")
    return (
        f"Nothing was published or changed. {' '.join(causes)} If that is intended,"
        " run it once with --accept-drop"
    )
