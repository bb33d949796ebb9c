"""Why clients are in a state: reasons in which one cause is one text, whoever the client is.

A mail server repeats the address in its reply, and adds ids and times of its own. `cause_of` takes
out what differs from client to client, so that 500 refusals for one cause are one group.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardpost.printable import one_line

# Groups of one state that a document has at most, and the clients that each of them names.
MOST_CAUSES = 20
MOST_NAMED = 3
# Groups that a message names.
MOST_IN_MESSAGE = 3
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
    """How many clients are in a state for one reason, and the first of them."""

    reason: str
    count: int
    clients: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as in the document of a run."""
        return {"reason": self.reason, "count": self.count, "clients": list(self.clients)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Cause":
        """Return the cause that `to_json` wrote."""
        return cls(form["reason"], form["count"], tuple(form["clients"]))


def cause_of(reason: str | None, client: str) -> str:
    """Return a reason without what is only about this client: address, id, and ids of the reply."""
    if not reason:
        return NO_REASON
    text = _ADDRESS.sub(_LEFT_OUT, _URL.sub(_LEFT_OUT, _QUOTED.sub(_LEFT_OUT, reason)))
    if client:
        text = re.sub(rf"(?<!\w){re.escape(client)}(?!\w)", _LEFT_OUT, text)
    text = _WORD.sub(lambda found: _without_id(found[0]), text)
    return _SEVERAL.sub(_LEFT_OUT, text)


def _without_id(word: str) -> str:
    return word if _KEPT.fullmatch(word) or not any(map(str.isdigit, word)) else _LEFT_OUT


def causes_of(found: Iterable[tuple[str, str]]) -> list[Cause]:
    """Group (client, cause); the largest group first, clients in their order."""
    counts: dict[str, int] = {}
    named: dict[str, list[str]] = {}
    for client, cause in found:
        counts[cause] = counts.get(cause, 0) + 1
        first = named.setdefault(cause, [])
        if len(first) < MOST_NAMED:
            first.append(client)
    return _largest(Cause(cause, counts[cause], tuple(named[cause])) for cause in counts)


def merged(causes: Iterable[Cause]) -> list[Cause]:
    """Add up the causes of several shards, or of several runs of different shards."""
    found: dict[str, Cause] = {}
    for cause in causes:
        before = found.get(cause.reason, Cause(cause.reason, 0, ()))
        clients = (*before.clients, *cause.clients)[:MOST_NAMED]
        found[cause.reason] = Cause(cause.reason, before.count + cause.count, clients)
    return _largest(found.values())


def _largest(causes: Iterable[Cause]) -> list[Cause]:
    return sorted(causes, key=lambda cause: (-cause.count, cause.reason))[:MOST_CAUSES]


def causes_text(causes: Iterable[Cause], count: int) -> str:
    """Return the largest causes of `count` clients in one line; empty if none is known."""
    found = list(causes)
    named = [_text(cause) for cause in found[:MOST_IN_MESSAGE]]
    rest = count - sum(cause.count for cause in found[:MOST_IN_MESSAGE])
    if named and rest > 0:
        named.append(f"{rest} for other reasons")
    return "; ".join(named)


def _text(cause: Cause) -> str:
    more = ", …" if cause.count > len(cause.clients) else ""
    return one_line(f'{cause.count} with "{cause.reason}" ({", ".join(cause.clients)}{more})')
