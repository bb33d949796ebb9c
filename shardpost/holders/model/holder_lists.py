"""What a KTable's adder and subtractor do with the list of a client, of a few changed positions.

The same of many, as transforms of frames, is in ../spark/fold.py.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardpost.holders.model.as_of import position_sort_key


class Side(NamedTuple):
    """A position as its table has it before a change, or after it; None where it has no row."""

    is_open: bool | None
    client: str | None
    exchange: str | None


@dataclass
class ListChange:
    """The ids of positions that a client came to hold, and ceased to."""

    added: list[str] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)

    def applied_to(self, held: Sequence[str]) -> list[str]:
        """Return the list after the change; both are in the order of `position_sort_key`."""
        left = [id_ for id_ in held if id_ not in self.removed]
        ids, start = list[str](), 0
        for id_ in sorted(set(self.added).difference(left), key=position_sort_key):
            at = bisect_right(left, position_sort_key(id_), lo=start, key=position_sort_key)
            ids += [*left[start:at], id_]
            start = at
        return ids + left[start:]


def list_changes(
    positions: Iterable[tuple[str, Side, Side]], before: Collection[str], now: Collection[str]
) -> dict[str, ListChange]:
    """Return what changes by client, given (id, before, after) of each changed position, once.

    `before` and `now` are the exchanges that counted, and that count.
    """
    changes: dict[str, ListChange] = defaultdict(ListChange)
    for id_, old, new in positions:
        held_by = old.client if old.is_open and old.exchange in before else None
        holds = new.client if new.is_open and new.exchange in now else None
        if held_by == holds:
            continue
        if held_by is not None:
            changes[held_by].removed.add(id_)
        if holds is not None:
            changes[holds].added.append(id_)
    return dict(changes)
