"""For which snapshot something was done, such that restored tables are recognised.

Tables that were restored from a copy give the numbers after it again: to other snapshots, which
other runs make. So what is noted in Kafka has the run beside the number.
"""

from collections.abc import Mapping
from typing import NamedTuple


class SnapshotRun(NamedTuple):
    """The number of a snapshot, 0 of none, and the run that made it.

    `run` is None where an older version noted it.
    """

    number: int
    run: str | None = None

    def is_in(self, runs: Mapping[int, str]) -> bool:
        """Tell whether that snapshot is one of {number: run}, those of the tables.

        If it is not, the tables were restored, and what was done since is not in them.
        """
        if self.number > max(runs, default=0):
            return False
        return self.run is None or runs.get(self.number, self.run) == self.run


NONE = SnapshotRun(0)
