"""What one compaction did, in numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunCounts:
    """Records that a run rejected, retries that it read, and those that are now the latest.

    Those `without_effect` are the other decodable ones. `reconciled` keys were closed, since their
    topics do not hold them any more.
    """

    rejected: int = 0
    retries: int = 0
    applied: int = 0
    without_effect: int = 0
    reconciled: int = 0

    def in_words(self) -> str:
        """Return those that are not 0 as one line."""
        words = {
            "rejected": self.rejected,
            "retries read": self.retries,
            "retries applied": self.applied,
            "retries without effect": self.without_effect,
            "keys closed": self.reconciled,
        }
        return (
            ", ".join(f"{count} {what}" for what, count in words.items() if count)
            or "none rejected"
        )
