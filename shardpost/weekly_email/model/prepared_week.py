"""A week that can be mailed: what every mode of the job starts from."""

from dataclasses import dataclass, replace
from datetime import datetime

from shardpost.delta.snapshot import Snapshot
from shardpost.weekly_email.model.email_context import EmailContext, Sender
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek


@dataclass(frozen=True)
class PreparedWeek:
    """The week, the instant it is of, and the audience that is frozen, or None.

    `snapshot` is the newest one; `partitions` is the number of all shards, `shards` are this run's.
    """

    iso_week: IsoWeek
    as_of: datetime
    sender: Sender
    snapshot: Snapshot
    partitions: int
    shards: list[int]
    frozen: FrozenWeek | None = None

    @property
    def snapshot_number(self) -> int:
        """The snapshot that the audience is of."""
        return self.frozen.snapshot if self.frozen else self.snapshot.number

    @property
    def country(self) -> str:
        """Whose stock counts."""
        return (self.frozen or self.snapshot).country

    @property
    def context(self) -> EmailContext:
        """What the week's e-mails have in common."""
        return EmailContext(self.iso_week, self.as_of, self.country, self.sender)

    def with_frozen(self, frozen: FrozenWeek) -> "PreparedWeek":
        """Return the week with its frozen audience.

        ShardpostError if that was erased, or its shards do not fit.
        """
        frozen.require_audience()
        frozen.require_shards(self.partitions)
        return replace(self, frozen=frozen, as_of=frozen.as_of)
