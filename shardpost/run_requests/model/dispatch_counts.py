"""What a dispatch did, in numbers and in words."""

from dataclasses import dataclass, field


@dataclass
class DispatchCounts:
    """What a dispatch did, in numbers.

    `waiting`: commands that are issued, and Airflow has no run yet; `unseen`: runs of which Airflow
    did not say how they stand; `lost`: offsets that Kafka removed before they were read, as text.
    """

    issued: int = 0
    started: int = 0
    already_running: int = 0
    conflicts: int = 0
    refused: int = 0
    released: int = 0
    forwarded: int = 0
    waiting: int = 0
    unseen: int = 0
    lost: list[str] = field(default_factory=list)

    def add(self, other: "DispatchCounts") -> None:
        """Add another partition's."""
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)

    def in_words(self) -> str:
        """Return what was done, on one line."""
        said = (
            f"{self.issued} issued, {self.started} started, {self.already_running} already running,"
            f" {self.conflicts} conflicts, {self.refused} refused, {self.released} released"
        )
        if not self.lost:
            return said
        return f"{said}; removed by Kafka before they were read: {', '.join(self.lost)}"
