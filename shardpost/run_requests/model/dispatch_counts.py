"""How many requests, commands and runs a dispatch handled, and how."""

from dataclasses import dataclass, field


@dataclass
class DispatchCounts:
    """What a dispatch did, in numbers; as JSON the result of `runs dispatch`.

    `waiting`: commands that are issued and not started; `unseen`: runs whose state Airflow did not
    return; `lost`: offsets that Kafka deleted before they were read, as text.
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
        """Add the counts of another partition."""
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)

    def in_words(self) -> str:
        """Return the counts as one line of text."""
        text = (
            f"{self.issued} issued, {self.started} started, {self.already_running} already running,"
            f" {self.conflicts} conflicts, {self.refused} refused, {self.released} released"
        )
        if not self.lost:
            return text
        return f"{text}; deleted by Kafka before they were read: {', '.join(self.lost)}"
