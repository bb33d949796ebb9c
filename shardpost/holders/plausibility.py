"""What is refused as implausible, unless a flag confirms it; the countries of exchanges.

Refused are a rule of who holds that no exchange meets, such as a SHARDPOST_COUNTRY that none has,
another rule than before, and a result with far fewer positions, holders or recipients than the last
one. A person who corrects a value hears what
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
from shardpost.holders.inputs import mappings_of
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.fields import first_problem
from shardpost.holders.model.input_mapping import Mappings, text_of
from shardpost.holders.model.view_tables import EXCHANGES, INPUTS
from shardpost.holders.model.who_holds import condition_of
from shardpost.installation import Installation
from shardpost.values.holding_rule import COUNTRY_UNKNOWN, Rule
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
CORRECT = "Correct SHARDPOST_COUNTRY or SHARDPOST_HOLDS, or continue with --country-changed"


def known_exchanges(tables: Tables, at: Mapping[Table, Version]) -> dict[str, str]:
    """Return {exchange: its country} by the table of exchanges at a version."""
    return {row["key"]: row["country"] for row in rows(tables, _KNOWN, at)}


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


def require_inputs(mappings: Mappings, last: Snapshot) -> None:
    """Refuse another SHARDPOST_INPUTS than the one by which a snapshot's records are decoded."""
    if text_of(mappings) != last.inputs:
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
            why = why_unknown(exchange, known)
            return f"would count the position {COUNTRY_UNKNOWN}: {why}"
    return None


def require_rule(tables: Tables, last: Snapshot, setting: Rule) -> None:
    """Refuse a rule of who holds that is not the one in force at the last snapshot."""
    wanted = last.rule_now(setting)
    if wanted == last.rule:
        return
    why = _never_met(wanted, tables, last)
    text = f"{why}, and" if why else f"{wanted}:"
    raise UsageError(
        f"{text} snapshot {last.number} is for {last.rule}. Correct SHARDPOST_COUNTRY or"
        " SHARDPOST_HOLDS; or change who holds: `shardpost rebuild start`, `rebuild diff` and"
        " `rebuild swap` show the affected clients first, while --country-changed applies it at"
        " once"
    )


def _never_met(rule: Rule, tables: Tables, at: Snapshot) -> str | None:
    """Return that no position can meet a rule, by the countries of the exchanges, if that is so."""
    countries = sorted({*known_at(tables, at).values()})
    is_met = condition_of(rule).is_met
    can_be_met = any(is_met({"country": one}) is not False for one in countries)
    if not countries or can_be_met or is_met({"country": None}):
        return None
    named = ", ".join(countries[:MOST_NAMED]) + (", …" if len(countries) > MOST_NAMED else "")
    nearest = "" if rule.holds else meant(rule.country, countries)
    return f"{rule}: no exchange has it{nearest or '.'} Their countries are {named}"


def require_met(rule: Rule, tables: Tables, made: Snapshot, *, advice: str = CORRECT) -> None:
    """Refuse a rule that no position can meet, where the country of any exchange is known."""
    if why := _never_met(rule, tables, made):
        kind = UsageError if advice == CORRECT else WrongArgumentError
        raise kind(f"{why}. {advice}")


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

    One by a rule that no position can meet, and one with far fewer open positions or holders.
    """
    if last is None and not asked.country_changed:
        require_met(made.rule, installation.tables, made)
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
    known = [known_at(installation.tables, one).items() for one in (last, made)]
    moved = ", ".join(sorted(repr(code) for code, _ in known[0] - known[1])[:MOST_NAMED])
    causes = []
    if moved:
        topic = installation.topic("exchanges")
        causes.append(f"No longer in the same country: {moved}; check the last records in {topic}.")
    if made.counts.unknown.unknown_positions > last.counts.unknown.unknown_positions:
        causes.append(f"There are {made.counts.unknown}.")
    if made.counts.positions < last.counts.positions or not causes:
        topic = installation.topic("positions")
        causes.append(f"Find the producer of the last tombstones and changes in {topic}.")
    return (
        f"Nothing was published or changed. {' '.join(causes)} If that is intended,"
        " run it once with --accept-drop"
    )
