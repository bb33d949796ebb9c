"""What one compaction did, in numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RunCounts:
    """Records that a run rejected, retries that it read, and those that are now the latest.

    Those `without_effect` are the other decodable ones. `reconciled` keys were closed, since their
    topics do not hold them any more. Of `uncertain` keys good records may be lost: they were left
    as they are, and `uncertain_keys` names the first of each topic.
    """

    rejected: int = 0
    retries: int = 0
    applied: int = 0
    without_effect: int = 0
    reconciled: int = 0
    uncertain: int = 0
    uncertain_keys: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    def in_words(self) -> str:
        """Return those that are not 0 as one line."""
        words = {
            "rejected": self.rejected,
            "retries read": self.retries,
            "retries applied": self.applied,
            "retries without effect": self.without_effect,
            "keys closed": self.reconciled,
            "keys uncertain": self.uncertain,
        }
        return (
            ", ".join(f"{count} {what}" for what, count in words.items() if count)
            or "none rejected"
        )
