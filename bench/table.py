"""The table that a benchmark prints."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.measured import Measured

HEAD = ["", "seconds: median (least to most)", "ratio", "peak MiB", "records/s"]


@dataclass
class Case:
    """One line: what was measured, over how many records, and its runs."""

    name: str
    records: int
    runs: list[Measured] = field(default_factory=list)

    def add(self, run: Measured) -> None:
        """Keep one run, and show it."""
        self.runs.append(run)
        print(f"  {self.name}: {run.seconds:.1f} s, peak {run.peak} MiB", flush=True)

    def cells(self, base: "Sequence[Case]") -> list[str]:
        """Return the line; the ratio is to the median of the base, if there is one."""
        seconds = sorted(run.seconds for run in self.runs)
        middle = median(seconds)
        ratio = [f"{middle / median(run.seconds for run in one.runs):.2f}" for one in base]
        peak = max((run.peak for run in self.runs), default=0)
        return [
            self.name,
            f"{middle:.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f})",
            "".join(ratio),
            f"{peak:,}" if peak else "",
            f"{self.records / middle:,.0f}",
        ]


def markdown(rows: list[list[str]]) -> str:
    """Return the table in Markdown."""
    lines = (HEAD, ["---"] * len(HEAD), *rows)
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
