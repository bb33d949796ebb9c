"""The outcome of a week's e-mail: counts by shard, and why clients got no mail.

Replies of mail servers contain the address, ids and times. `cause_of` removes what differs from
client to client, so that 500 refusals for one cause are one group.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from shardpost.errors import one_line, shown
from shardpost.weekly_email.model.ledger import CLOSED_STATES, DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
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


class Cause(TypedDict):
    """The number of clients in a state for one reason, and the first of them."""

    reason: str
    count: int
    clients: Sequence[str]


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
    return merged_causes(Cause(reason=why, count=1, clients=[client]) for client, why in reasons)


def merged_causes(causes: Iterable[Cause]) -> list[Cause]:
    """Add up the causes of several shards, or of several runs of different shards."""
    groups: dict[str, Cause] = {}
    for cause in causes:
        reason = cause["reason"]
        group = groups.setdefault(reason, Cause(reason=reason, count=0, clients=[]))
        group["count"] += cause["count"]
        group["clients"] = [*group["clients"], *cause["clients"]][:MOST_NAMED]
    return sorted(groups.values(), key=lambda one: (-one["count"], one["reason"]))[:MOST_CAUSES]


def causes_text(causes: Iterable[Cause], count: int) -> str:
    """Return the largest causes of `count` clients in one line; empty if unknown."""
    largest = list(causes)[:MOST_IN_MESSAGE]
    named = []
    for cause in largest:
        clients = ", ".join(map(shown, cause["clients"]))
        more = ", …" if cause["count"] > len(cause["clients"]) else ""
        named.append(one_line(f'{cause["count"]} with "{cause["reason"]}" ({clients}{more})'))
    rest = count - sum(cause["count"] for cause in largest)
    if named and rest > 0:
        named.append(f"{rest} for other reasons")
    return "; ".join(named)


EXPLAINED = (DeliveryState.FAILED, DeliveryState.SUPPRESSED)  # the states that have causes


@dataclass(frozen=True)
class ShardStatus:
    """The clients of one shard by state, and why they are `failed` or `suppressed`.

    `sent` to `suppressed` come from the ledger; `open` are the audience members without an entry,
    of whom `without_contact` cannot be mailed yet, in an early week.
    """

    shard: int
    sent: int = 0
    failed: int = 0
    unknown: int = 0
    suppressed: int = 0
    open: int = 0
    unknown_clients: tuple[str, ...] = ()
    causes: Mapping[str, Sequence[Cause]] = field(default_factory=dict)
    without_contact: int = 0


STATES = (*map(str, CLOSED_STATES), "open")
COLUMNS = ("shard", *STATES)


@dataclass(frozen=True)
class ShardReport:
    """The answers of the mail server to a shard in one run; `error` is what stopped it, or None.

    `accepted` and `refused` count the mails of this run; `provisional` are, as JSON, the refusals
    that depend on the answers of all shards (model/server_health.py).
    """

    shard: int
    error: str | None = None
    accepted: int = 0
    refused: int = 0
    provisional: tuple[str, ...] = ()


def status_document(week: IsoWeek, shards: Iterable[ShardStatus]) -> dict[str, Any]:
    """Return the status of a week: the contract's counts and unknown clients, and the reasons."""
    return joined(
        week,
        (
            {
                "shards": [{name: getattr(status, name) for name in COLUMNS}],
                "unknown": status.unknown_clients,
                "causes": status.causes,
                "without_contact": status.without_contact,
            }
            for status in shards
        ),
    )


def joined(week: object, documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return several statuses of different shards of a week as one; a dry run counts nobody."""
    parts = list(documents)
    return {
        "week": str(week),
        "shards": [shard for part in parts for shard in part.get("shards", ())],
        "unknown": sorted(client for part in parts for client in part.get("unknown", ())),
        "causes": {
            str(state): merged_causes(
                cause for part in parts for cause in part.get("causes", {}).get(str(state), ())
            )
            for state in EXPLAINED
        },
        "without_contact": sum(part.get("without_contact", 0) for part in parts),
    }


MOST_LATE_NAMED = 20


def late_document(missed: Iterable[str] = (), changed: Iterable[str] = ()) -> dict[str, Any]:
    """Return the part of `emails --json` on holders as of the week's end that the audience missed.

    `changed` are members whose mail listed other positions than they held. It names the first.
    """
    late = [*sorted(missed), *(others := sorted(changed))]
    counts = {"missed": len(late) - len(others), "changed": len(others)}
    return counts | {"clients": late[:MOST_LATE_NAMED]}


def late_line(late: Mapping[str, Any]) -> str:
    """Return a `late_document` as one line."""
    missed, changed, named = late["missed"], late["changed"], late["clients"]
    named = [*named, "…"] if missed + changed > len(named) else named
    which = counted(missed, "more client")
    return one_line(
        f"late records: according to records read after the freeze, {which} held stock at the"
        f" week's end, and {changed} held other positions than their e-mail lists; no e-mail"
        f" follows for these ({', '.join(map(shown, named))})"
    )


def failed_line(document: Mapping[str, Any]) -> str | None:
    """Return why clients failed and the command that lists them; None if no client failed."""
    failed = sum(shard["failed"] for shard in document["shards"])
    if not failed:
        return None
    why = causes_text(document["causes"]["failed"], failed) or failed
    return (
        f"failed: {why}; `shardpost emails --week {document['week']} --state failed` lists them all"
    )
