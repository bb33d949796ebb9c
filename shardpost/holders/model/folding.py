"""When the layer over a table's files is folded in, which rewrites them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FoldingRule:
    """A layer is folded in once its records are that share of the rows, or after so many runs.

    Below `least_records` their share does not count: a small table would be folded all the time.
    """

    share: float
    least_records: int
    runs: int

    def is_due(self, *, records: int, rows: int, runs: int) -> bool:
        """Tell whether a layer of so many records, by so many runs, is folded in.

        `rows` are those of the table's files.
        """
        if not records:
            return False
        return runs >= self.runs or records >= max(self.least_records, self.share * rows)
