"""The outcome of a week's e-mail: counts by shard, and why clients got no mail.

Replies of mail servers contain the address, ids and times. `cause_of` removes what differs from
client to client, so that 500 refusals for one cause are one group.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from shardpost.errors import one_line, shown
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.server_health import Refusal
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.wording import counted

MOST_CAUSES = 20  # groups per state in a document
MOST_NAMED = 3  # clients of a group
MOST_IN_MESSAGE = 3  # groups in a message
NO_REASON = "no reason on record"

_LEFT_OUT = "…"
_QUOTED = re.compile(r"""(?<!\w)'[^']*'|"[^"]*\"""")
_ADDRESS = re.compile(r"<[^<>\s]*@[^<>\s]*>|[^\s<>]+@[^\s<>:;,]*[^\s<>:;,.]")
_URL = re.compile(r"https?://\S+")
_WORD = re.compile(r"(?<![\w.])[\w+=/-]+(?:[.:][\w+=/-]+)*")
# Reply codes (RFC 5321), status codes (RFC 3463), small numbers, names of extensions.
_KEPT = re.compile(r"\d{1,3}|(?:[245]\d\d-)?[245]\.\d{1,3}\.\d{1,3}|SMTPUTF8|8BITMIME")
_SEVERAL = re.compile(r"…(?:\s*…)+")


@dataclass(frozen=True)
class Cause:
    """The number of clients in a state for one reason, and the first of them."""

    reason: str
    count: int
    clients: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the document of a run."""
        return {"reason": self.reason, "count": self.count, "clients": list(self.clients)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Cause":
        """Return the cause that `to_json` wrote."""
        return cls(form["reason"], form["count"], tuple(form["clients"]))


def cause_of(reason: str | None, client: str) -> str:
    """Return a reason without what is specific to a client: address, id, ids in the reply."""
    if not reason:
        return NO_REASON
    text = _ADDRESS.sub(_LEFT_OUT, _URL.sub(_LEFT_OUT, _QUOTED.sub(_LEFT_OUT, reason)))
    if client and client in text:  # compiling a pattern takes ten times as long as all of this
        text = re.sub(rf"(?<!\w){re.escape(client)}(?!\w)", _LEFT_OUT, text)
    text = _WORD.sub(lambda match: _without_id(match[0]), text)
    return _SEVERAL.sub(_LEFT_OUT, text)


def _without_id(word: str) -> str:
    return word if _KEPT.fullmatch(word) or not any(map(str.isdigit, word)) else _LEFT_OUT


def causes_of(reasons: Iterable[tuple[str, str]]) -> list[Cause]:
    """Group (client, cause); the largest group first, clients in their order."""
    return merged_causes(Cause(cause, 1, (client,)) for client, cause in reasons)


def merged_causes(causes: Iterable[Cause]) -> list[Cause]:
    """Add up the causes of several shards, or of several runs of different shards."""
    groups: dict[str, Cause] = {}
    for cause in causes:
        before = groups.get(cause.reason, Cause(cause.reason, 0, ()))
        clients = (*before.clients, *cause.clients)[:MOST_NAMED]
        groups[cause.reason] = Cause(cause.reason, before.count + cause.count, clients)
    return sorted(groups.values(), key=lambda cause: (-cause.count, cause.reason))[:MOST_CAUSES]


def causes_text(causes: Iterable[Cause], count: int) -> str:
    """Return the largest causes of `count` clients in one line; empty if unknown."""
    largest = list(causes)[:MOST_IN_MESSAGE]
    named = []
    for cause in largest:
        clients = ", ".join(map(shown, cause.clients))
        more = ", …" if cause.count > len(cause.clients) else ""
        named.append(one_line(f'{cause.count} with "{cause.reason}" ({clients}{more})'))
    rest = count - sum(cause.count for cause in largest)
    if named and rest > 0:
        named.append(f"{rest} for other reasons")
    return "; ".join(named)


@dataclass(frozen=True)
class ShardCounts:
    """The clients of one shard by state.

    `sent` to `suppressed` come from the ledger; `open` are the audience members without an entry.
    """

    shard: int
    sent: int = 0
    failed: int = 0
    unknown: int = 0
    suppressed: int = 0
    open: int = 0
    unknown_clients: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        """The number of clients in all states."""
        return sum(getattr(self, name) for name in STATES)

    @classmethod
    def of(
        cls,
        shard: int,
        states: Mapping[DeliveryState, int],
        open_clients: int,
        unknown_clients: Iterable[str],
    ) -> "ShardCounts":
        """Return the counts of a shard, without clients that are being mailed."""
        counts = {str(state): states[state] for state in DeliveryState if str(state) in COLUMNS}
        unknown = tuple(sorted(unknown_clients))
        return cls(shard, **counts, open=open_clients, unknown_clients=unknown)


COLUMNS = tuple(column.name for column in fields(ShardCounts) if column.name != "unknown_clients")
STATES = COLUMNS[1:]


@dataclass(frozen=True)
class ShardReport(ShardCounts):
    """The counts of a shard when its run ended; `error` is what stopped it, or None.

    `accepted` and `refused` count the mails of this run; `provisional` are, as JSON, the refusals
    that depend on the answers of all shards (model/server_health.py).
    """

    error: str | None = None
    accepted: int = field(default=0, compare=False)
    refused: int = field(default=0, compare=False)
    provisional: tuple[str, ...] = field(default=(), compare=False)

    @property
    def answers(self) -> dict[str, Any]:
        """The shard's share of the answers of the whole run, as report fields."""
        names = ("shard", "error", "accepted", "refused", "provisional")
        return {name: getattr(self, name) for name in names}

    def with_failed(self, refusals: Sequence[Refusal]) -> "ShardReport":
        """Return the counts after refusals became final."""
        before = Counter(refusal.before for refusal in refusals)
        resent = (refusal for refusal in refusals if refusal.before is DeliveryState.UNKNOWN)
        names = {refusal.entry.client for refusal in resent}
        unknown = tuple(client for client in self.unknown_clients if client not in names)
        return replace(
            self,
            failed=self.failed + len(refusals),
            open=self.open - before[None],
            unknown=self.unknown - before[DeliveryState.UNKNOWN],
            suppressed=self.suppressed - before[DeliveryState.SUPPRESSED],
            unknown_clients=unknown,
            provisional=(),
        )


def counts_document(week: IsoWeek, shards: Iterable[ShardCounts]) -> dict[str, Any]:
    """Return the counts of a week in the contract's form: per shard, and the unknown clients."""
    counts = list(shards)
    return {
        "week": str(week),
        "shards": [{name: getattr(shard, name) for name in COLUMNS} for shard in counts],
        "unknown": sorted(client for shard in counts for client in shard.unknown_clients),
    }


EXPLAINED = (DeliveryState.FAILED, DeliveryState.SUPPRESSED)
Causes = Mapping[str, Sequence[Cause]]


@dataclass(frozen=True)
class ShardStatus:
    """The counts of one shard, and why its clients are `failed` or `suppressed`.

    `without_contact`: how many open clients of an early week cannot be mailed yet.
    """

    counts: ShardCounts
    causes: Causes = field(default_factory=dict)
    without_contact: int = 0


def status_document(week: IsoWeek, shards: Iterable[ShardStatus]) -> dict[str, Any]:
    """Return the status of a week: the contract's counts and the reasons."""
    statuses = list(shards)
    causes = added_up(status.causes for status in statuses)
    return {
        **counts_document(week, (status.counts for status in statuses)),
        "causes": {state: [cause.to_json() for cause in causes[state]] for state in causes},
        "without_contact": sum(status.without_contact for status in statuses),
    }


MOST_LATE_NAMED = 20


@dataclass(frozen=True)
class LateClients:
    """Holders as of the week's end that the audience `missed`.

    `changed` are members whose mail listed other positions than they held. Both by id.
    """

    missed: Sequence[str] = ()
    changed: Sequence[str] = ()

    @property
    def count(self) -> int:
        """The number of clients of both kinds."""
        return len(self.missed) + len(self.changed)

    def as_json(self) -> dict[str, Any]:
        """Return their part of `emails --json`, with the first of these clients."""
        return {
            "missed": len(self.missed),
            "changed": len(self.changed),
            "clients": [*self.missed, *self.changed][:MOST_LATE_NAMED],
        }


def late_line(late: Mapping[str, Any]) -> str:
    """Return the JSON of `LateClients` as one line."""
    missed, changed, named = late["missed"], late["changed"], late["clients"]
    named = [*named, "…"] if missed + changed > len(named) else named
    which = counted(missed, "more client")
    return one_line(
        f"late records: according to records read after the freeze, {which} held stock at the"
        f" week's end, and {changed} held other positions than their e-mail lists; no e-mail"
        f" follows for these ({', '.join(map(shown, named))})"
    )


def gone_document(audience: object) -> dict[str, Any]:
    """Return the fields of a status for an erased audience; none for any other."""
    if not isinstance(audience, FrozenWeek) or audience.audience_erased_at is None:
        return {}
    return {
        "audience_erased": {
            "at": audience.audience_erased_at.isoformat(),
            "clients": audience.recipients,
        }
    }


def causes_in(documents: Iterable[Mapping[str, Any]]) -> dict[str, list[Cause]]:
    """Return the causes of several documents of different shards, added up."""
    return added_up(
        {state: list(map(Cause.from_json, forms)) for state, forms in causes.items()}
        for document in documents
        if (causes := document.get("causes")) is not None
    )


def failed_line(week: object, documents: Iterable[Mapping[str, Any]]) -> str | None:
    """Return why clients failed and the command that lists them; None if no client failed."""
    runs = list(documents)
    failed = sum(shard["failed"] for document in runs for shard in document.get("shards", ()))
    if not failed:
        return None
    why = causes_text(causes_in(runs)["failed"], failed) or failed
    return f"failed: {why}; `shardpost emails --week {week} --state failed` lists them all"


def added_up(parts: Iterable[Causes]) -> dict[str, list[Cause]]:
    """Add up causes by state."""
    known = list(parts)
    return {
        str(state): merged_causes(cause for part in known for cause in part.get(str(state), ()))
        for state in EXPLAINED
    }
