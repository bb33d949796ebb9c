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
        " `shardpost compact`; until then Kafka has name and address, and so has whatever is made"
        " of the topic anew",
        f"topic {topics['weekly-emails']}: Kafka removes the records that were replaced when it"
        " compacts the topic",
        f"topics {topics['dead-letters']}, {topics['retries']}, {topics['parking-lot']}: values and"
        " errors of its letters, until they are dealt with and compacted: `shardpost letters list`;"
        " an open one that is retried or parked brings them back: discard it first",
        f"topic {topics['decisions']}: decisions about its mails, under its id, for a year",
        "tables: `shardpost tables maintain` removes the files of older snapshots, and bounds of"
        " names and addresses in the tables' logs, from an hour after this on (of dead_letters from"
        " a day on); the DAG maintain_tables does it weekly",
        "records under another key than its id, or none",
        "logs, backups, the mail server, and the mails that it has got",
    )


@dataclass
class ErasedClient:
    """What was erased, or with `dry_run` would be.

    `ledger` are the weeks in which the ledger has it under its hash now, `audiences` those whose
    audience has lost it; `tables` counts by table the rows whose contact is gone, `left` those that
    have it (still, or by a record that came meanwhile). `postponed` says of each week, and of
    `tables`, why nothing was erased of it.
    """

    client: str
    name: str
    dry_run: bool
    others: tuple[str, ...]
    ledger: list[str] = field(default_factory=list)
    audiences: list[str] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
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
            "erased": {
                "ledger": self.ledger,
                "audiences": self.audiences,
                "tables": self.tables,
            },
            "not_erased": self.left,
            "postponed": self.postponed,
            "stays": list(STAYS),
            "others": list(self.others),
            "complete": self.is_complete,
        }

    def lines(self) -> list[str]:
        """Return it in words."""
        verb = "would be erased" if self.dry_run else "erased"
        # A dry run erases nothing: what is there would be.
        tables, left = (self.left, {}) if self.dry_run else (self.tables, self.left)
        is_found = self.audiences or self.ledger or tables or left or self.postponed
        return [
            f"{self.client}: from now on {self.name}",
            *(
                []
                if is_found
                else ["nothing was found of it: is the id right, or was it erased before?"]
            ),
            f"{verb} from audiences (name, address, holdings): {_named(self.audiences)}",
            f"{verb} from the ledger (id, reasons): {_named(self.ledger)}",
            f"{verb} from tables (name, address, values and errors of records): {_counted(tables)}",
            *(f"NOT erased: {week}: {why}" for week, why in self.postponed.items()),
            *(
                f"NOT erased: {count} rows of table {table} have its contact"
                for table, count in left.items()
            ),
            *(f"stays: {what}" for what in STAYS),
            *(f"to be done by others: {what}" for what in self.others),
        ]


def _counted(tables: Mapping[str, int]) -> str:
    return ", ".join(f"{count} rows of {table}" for table, count in tables.items()) or "nothing"


def _named(weeks: list[str]) -> str:
    return f"{len(weeks)} weeks{': ' if weeks else ''}{', '.join(weeks)}"
