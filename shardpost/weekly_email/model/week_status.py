"""What became of a week's e-mail: counts by shard, and why clients got none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardpost.weekly_email.model.causes import Cause, causes_text, merged
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.shard_counts import ShardCounts, counts_document

# The states of which a document says why.
EXPLAINED = (DeliveryState.FAILED, DeliveryState.SUPPRESSED)
Causes = Mapping[str, Sequence[Cause]]


@dataclass(frozen=True)
class ShardStatus:
    """The counts of one shard, and why its clients are `failed` or `suppressed`.

    `without_contact`: how many of the open clients of an early week no mail can be written to yet.
    """

    counts: ShardCounts
    causes: Causes = field(default_factory=dict)
    without_contact: int = 0


def status_document(week: IsoWeek, shards: Iterable[ShardStatus]) -> dict[str, Any]:
    """Return the status of a week: the contract's counts, and beside them why."""
    found = list(shards)
    causes = added_up(shard.causes for shard in found)
    return {
        **counts_document(week, (shard.counts for shard in found)),
        "causes": {state: [one.to_json() for one in causes[state]] for state in causes},
        "without_contact": sum(shard.without_contact for shard in found),
    }


def gone_document(audience: object) -> dict[str, Any]:
    """Return what a status says of an audience that was erased; nothing of any other."""
    if not isinstance(audience, FrozenWeek) or audience.audience_erased_at is None:
        return {}
    return {
        "audience_erased": {
            "at": audience.audience_erased_at.isoformat(),
            "clients": audience.recipients,
        }
    }


def causes_in(documents: Iterable[Mapping[str, Any]]) -> dict[str, list[Cause]]:
    """Return the causes of several documents, each of other shards, added up."""
    return added_up(
        {state: list(map(Cause.from_json, forms)) for state, forms in found.items()}
        for document in documents
        if (found := document.get("causes")) is not None
    )


def failed_line(week: object, documents: Iterable[Mapping[str, Any]]) -> str | None:
    """Return why clients failed, and what lists them all; None if nobody did."""
    found = list(documents)
    failed = sum(shard["failed"] for document in found for shard in document.get("shards", ()))
    if not failed:
        return None
    why = causes_text(causes_in(found)["failed"], failed) or failed
    return f"failed: {why}; `shardpost emails --week {week} --state failed` lists them all"


def added_up(parts: Iterable[Causes]) -> dict[str, list[Cause]]:
    """Add up causes by state."""
    found = list(parts)
    return {
        str(state): merged(cause for part in found for cause in part.get(str(state), ()))
        for state in EXPLAINED
    }
