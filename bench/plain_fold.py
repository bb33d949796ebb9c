"""A plain fold that goes on, record by record: whose holdings do they change."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench import stream
from bench.stream import Record
from shardpost.delta.snapshot import Counts


@dataclass
class Holdings:
    """A plain fold: {position: (client, exchange)}, and {client: the positions that count}."""

    positions: dict[str, tuple[str, str]] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)

    def apply(self, records: Iterable[Record]) -> set[str]:
        """Take records; return the clients whose holdings they change."""
        before: dict[str, tuple[str, str] | None] = {}
        for key, value, _ in records:
            before.setdefault(key, self.positions.get(key))
            if value is None:
                self.positions.pop(key, None)
            else:
                form = json.loads(value)
                self.positions[key] = form["Client"], form["Exchange"]
        return {client for key, old in before.items() for client in self._moved(key, old)}

    def _moved(self, key: str, old: tuple[str, str] | None) -> set[str]:
        gone, come = _holder(old), _holder(self.positions.get(key))
        if gone == come:
            return set()
        if gone:
            self.held[gone].remove(key)
        if come:
            self.held.setdefault(come, set()).add(key)
        return {gone, come} - {""}

    @property
    def counts(self) -> Counts:
        """What a snapshot counts of them."""
        sizes = [len(ids) for ids in self.held.values() if ids]
        return Counts(len(self.positions), len(sizes), sum(sizes))


def _holder(at: tuple[str, str] | None) -> str:
    """Return the client who holds by that; "" for nobody."""
    return at[0] if at and at[1] in stream.COUNTING else ""
