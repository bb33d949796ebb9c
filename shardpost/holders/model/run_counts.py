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
