"""The result of a sweep: counts, and what of it a person has to see."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardpost.dead_letters.model.intake_position import Gap
from shardpost.dead_letters.model.letter_format import ORIGIN_TOPIC, header_text
from shardpost.dead_letters.model.outcome import Outcome, reported
from shardpost.dead_letters.model.transition_records import PARKED_ERROR
from shardpost.kafka.records import Outgoing
from shardpost.printable import one_line

# Groups of parked letters, gaps and partitions that a result names, each; the counts are of all.
NAMED = 100
SEE_PARKED = "`shardpost letters list --state parked` lists them"


class ParkedGroup(NamedTuple):
    """Parked letters of one origin, with one fingerprint of their error."""

    origin: str
    error: str


@dataclass(frozen=True)
class Intake:
    """What was taken in from foreign topics: how many, what is missing, what could not be read."""

    taken_in: int = 0
    gaps: tuple[Gap, ...] = ()
    not_read: tuple[str, ...] = ()


def parked_group(parked: Outgoing) -> ParkedGroup:
    """Return the group of a record of the parking lot; one that is malformed may have no origin."""
    headers = dict(parked.headers)
    names = (ORIGIN_TOPIC, PARKED_ERROR)
    return ParkedGroup(*(header_text(headers.get(name)) for name in names))


def as_json(
    counts: Counter[Outcome],
    parked: Counter[ParkedGroup],
    held_errors: Iterable[str],
    intake: Intake,
) -> dict[str, Any]:
    """Return the form of `letters sweep --json`."""
    return {
        **reported(counts),
        "taken_in": intake.taken_in,
        "held_errors": sorted(held_errors),
        "parked_errors": [
            {"origin": group.origin or None, "error": group.error, "letters": count}
            for group, count in parked.most_common(NAMED)
        ],
        "gaps": [gap.as_json() for gap in intake.gaps[:NAMED]],
        "not_read": [*intake.not_read[:NAMED]],
    }


def for_a_person(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each thing in a sweep's result that needs a person; none if all is well."""
    lines = []
    if result["held"]:
        errors = ", ".join(result["held_errors"])
        why = f"too many due letters of one error: {errors}" if errors else "the log says why"
        lines.append(f"held: {result['held']}, {why}")
    lines += [str(Gap.from_json(gap)) for gap in result["gaps"]]
    lines += [f"not read: {reason}" for reason in result["not_read"]]
    return [*parked_lines(result), *map(one_line, lines)]


def parked_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each origin and error of which letters were parked."""
    return [
        one_line(
            f"parked: {group['letters']} of {group['origin'] or 'no known origin'},"
            f" {group['error']}: {SEE_PARKED}"
        )
        for group in result["parked_errors"]
    ]
