"""What was erased of one client, what was not, and what stays: as a value that prints itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardpost.topic_names import TopicName

STAYS = (
    "that a mail of a week was sent to it, was not, or may have been: in the ledger, under the hash"
    " of its id, so that nobody mails it again for that week",
    "its positions: in the topics and tables of positions and holders, as trading records under its"
    " id; they hold no name and no address",
    "counts of clients: in frozen_weeks and closed_weeks",
)


def others(client: str, topics: Mapping[TopicName, str]) -> tuple[str, ...]:
    """Return what the command cannot do; `topics` are the names of this installation's topics."""
    return (
        f"topic {topics['clients']}: its owner writes a tombstone (key {client}, null value), then"
        " `shardpost compact`; until then the next weeks' mails have name and address again",
        f"topic {topics['weekly-emails']}: Kafka removes the records that were replaced when it"
        " compacts the topic",
        f"topics {topics['dead-letters']}, {topics['retries']}, {topics['parking-lot']}: values of"
        " its letters, until they are dealt with and compacted: `shardpost letters list`",
        f"topic {topics['decisions']}: decisions about its mails, under its id, for a year",
        "tables clients and client_events: the files of older snapshots, until these are no longer"
        " kept and their files removed; the tables' logs have bounds of names and addresses",
        "tables rejected_records and dead_letters: records of it that could not be decoded",
        "logs, backups, the mail server, and the mails that it has got",
    )


@dataclass
class ErasedClient:
    """What was erased, or with `dry_run` would be.

    `ledger` are the weeks in which the ledger has it under its hash now, `audiences` those whose
    audience has lost it. `left` counts by table the rows that still have its contact, which this
    command does not erase. `postponed` says of each week why nothing was erased of it.
    """

    client: str
    name: str
    dry_run: bool
    others: tuple[str, ...]
    ledger: list[str] = field(default_factory=list)
    audiences: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    postponed: dict[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether Shardpost's own tables and ledger have no contact of it any more."""
        return not self.postponed and not any(self.left.values())

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "client": self.client,
            "hash": self.name,
            "dry_run": self.dry_run,
            "erased": {"ledger": self.ledger, "audiences": self.audiences},
            "not_erased": self.left,
            "postponed": self.postponed,
            "stays": list(STAYS),
            "others": list(self.others),
            "complete": self.is_complete,
        }

    def lines(self) -> list[str]:
        """Return it in words."""
        verb = "would be erased" if self.dry_run else "erased"
        return [
            f"{self.client}: from now on {self.name}",
            f"{verb} from audiences (name, address, holdings): {_named(self.audiences)}",
            f"{verb} from the ledger (id, reasons): {_named(self.ledger)}",
            *(f"NOT erased: {week}: {why}" for week, why in self.postponed.items()),
            *(
                f"NOT erased: {count} rows of table {table} have its contact, or had it in kept"
                " snapshots: this command does not change the tables of snapshots"
                for table, count in self.left.items()
                if count
            ),
            *(f"stays: {what}" for what in STAYS),
            *(f"to be done by others: {what}" for what in self.others),
        ]


def _named(weeks: list[str]) -> str:
    return f"{len(weeks)} weeks{': ' if weeks else ''}{', '.join(weeks)}"
