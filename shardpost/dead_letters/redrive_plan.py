"""The plan of a redrive: which letters would move, and which are refused."""

from collections import Counter
from dataclasses import dataclass, field

from shardpost.dead_letters.parked_selection import selected_letters
from shardpost.dead_letters.redrive import Redrive

REFUSED_SHOWN = 100


@dataclass
class RedrivePlan:
    """What is selected, by (origin, fingerprint): how many and one of them; what is refused.

    Of what is selected, at most `canary` letters move.
    """

    canary: int | None = None
    groups: Counter[tuple[str, str]] = field(default_factory=Counter)
    samples: dict[tuple[str, str], str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    refused_count: int = 0

    @property
    def count(self) -> int:
        """How many letters would move."""
        selected = self.groups.total()
        return selected if self.canary is None else min(selected, self.canary)

    def refuse(self, letter_id: str, reason: str) -> None:
        """Count a letter that does not move; the first of them are kept with their reasons."""
        self.refused_count += 1
        if len(self.refused) < REFUSED_SHOWN:
            self.refused[letter_id] = reason


def plan(redrive: Redrive) -> RedrivePlan:
    """Return what a redrive would do now; an id that is not parked is refused."""
    found = RedrivePlan(redrive.limits.canary)
    missing = set(redrive.request.selection.ids)
    for partition in redrive.partitions:
        for letter in selected_letters(redrive.settings, partition, redrive.request):
            missing.discard(letter.id)
            if letter.refusal is not None:
                found.refuse(letter.id, letter.refusal)
                continue
            group = letter.origin, letter.error
            found.groups[group] += 1
            found.samples.setdefault(group, letter.id)
    for letter_id in sorted(missing):
        show = f"`shardpost letters show {letter_id}` prints its life, if it has one"
        found.refuse(letter_id, f"expected a parked letter, found none; {show}")
    return found
