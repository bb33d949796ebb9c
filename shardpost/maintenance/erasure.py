"""A client erased on demand, from ledger, audiences and tables; recorded as a decision.

The ledger goes first: a client that is in an audience is not mailed any more from then on, whatever
becomes of the rest. Weeks that were begun early come after the tables: their contacts are those of
the tables. Each step may be the last before a crash; erasing the client again continues.
"""

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from shardpost.dead_letters import removal as letters
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.delta.query import table_errors
from shardpost.errors import shown
from shardpost.holders import erasure as holders_erasure
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.locks.locks import postponing
from shardpost.logs import step
from shardpost.rebuilds import drop as standby_tables
from shardpost.rebuilds.registry import rebuilding
from shardpost.topics import guards
from shardpost.weekly_email import email_erasure, ledger_projection, week_state
from shardpost.weekly_email.email_erasure import AudienceOfClient
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.ledger import erased_id
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import counted

STAYS = (
    "whether a week's mail was sent to it: in the ledger, under the hash of its id, so that it is"
    " not mailed again for that week",
    "its positions: in the topics and tables of positions and holders, as trading records under its"
    " id; they hold no name and no address",
    "counts of clients: in frozen_weeks and closed_weeks",
)


def others(kafka: Kafka, client: str) -> tuple[str, ...]:
    """Return what is left for others to erase."""
    topic = kafka.topic
    return (
        f"topic {topic('clients')}: its owner writes a tombstone (key {client}, null value), then"
        " `shardpost compact`; until then Kafka has its name and address, and anything rebuilt"
        " from the topic has them, too",
        f"topic {topic('weekly-emails')}: Kafka removes the replaced records when it compacts the"
        " topic",
        f"topics {topic('dead-letters')}, {topic('retries')}, {topic('parking-lot')}: values and"
        " errors of its letters, until they are resolved and compacted: `shardpost letters"
        " list`; an open letter that is retried or parked brings them back: discard it first",
        f"topic {topic('decisions')}: decisions about its mails, under its id, for a year",
        "tables: `shardpost tables maintain` removes the files of older snapshots, and bounds of"
        " names and addresses in the tables' logs, an hour after this at the earliest (for "
        "dead_letters, a day); the DAG maintain_tables does it weekly",
        "homes of other machines (projections of the ledger): reasons with its address, until its"
        " shard is read there, or for 30 days",
        "records with a key other than its id, or without a key",
        "logs, backups, the mail server, and the mails that it received",
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
            "erased": {"ledger": self.ledger, "audiences": self.audiences, "tables": self.tables},
            "not_erased": self.left,
            "postponed": self.postponed,
            "stays": list(STAYS),
            "others": list(self.others),
            "complete": self.is_complete,
        }

    def lines(self) -> list[str]:
        """Return it in words."""
        verb = "would be erased" if self.dry_run else "erased"
        # A dry run erases nothing: what is left is what would be erased.
        tables, left = (self.left, {}) if self.dry_run else (self.tables, self.left)
        rows = [f"{counted(count, 'row')} of {table}" for table, count in tables.items()]
        is_found = self.audiences or self.ledger or tables or left or self.postponed
        hint = "nothing was found: check the id; the client may have been erased before"
        return [
            f"{shown(self.client)}: from now on {self.name}",
            *([] if is_found else [hint]),
            f"{verb} from audiences (name, address, holdings): {_named(self.audiences)}",
            f"{verb} from the ledger (id, reasons): {_named(self.ledger)}",
            f"{verb} from tables (name, address, values and errors of records):"
            f" {', '.join(rows) or 'nothing'}",
            *(f"NOT erased: {week}: {why}" for week, why in self.postponed.items()),
            *(
                f"NOT erased: its contact in {counted(count, 'row')} of table {table}"
                for table, count in left.items()
            ),
            *(f"stays: {what}" for what in STAYS),
            *(f"left to others: {what}" for what in self.others),
        ]


def _named(weeks: list[str]) -> str:
    return f"{counted(len(weeks), 'week')}{': ' if weeks else ''}{', '.join(weeks)}"


@dataclass(frozen=True)
class ErasureRequest:
    """Who is erased, by whom, why and when."""

    client: str
    who: str
    why: str
    when: datetime


def erase(
    installation: Installation, request: ErasureRequest, *, dry_run: bool = False
) -> ErasedClient:
    """Erase a client; what is in use is postponed, and then no decision is recorded.

    Weeks that are being mailed are postponed, and tables that another run holds for longer than
    `lock_wait`. No week is frozen meanwhile: its audience would have the contact again. LockedError
    while a freeze runs; ShardpostError for a ledger of which Kafka may delete records.
    """
    client = request.client
    result = ErasedClient(client, erased_id(client), dry_run, others(installation.kafka, client))
    shards = range(week_state.compacted_ledger(installation.kafka).partitions)
    with table_errors(), guards.run(installation, "erase_client", asks_owner=not dry_run):
        _Erasure(installation, request, result, shards).run()
    if not dry_run and not result.postponed:
        step("decision")
        about, topic = result.name.encode(), installation.kafka.topic("decisions")
        lost = {"audiences": result.audiences, "ledger": result.ledger, "tables": [*result.tables]}
        decisions_topic.record(
            installation.kafka,
            f"{topic}/erase/{result.name}",
            Decision(about, Kind.ERASED, request.who, request.when, request.why),
            {name: ",".join(parts).encode() for name, parts in lost.items()},
            may_write=partial(guards.require_owner, installation),
            done="the client is erased: run again",
        )
    return result


class _Erasure:
    """One erasure, behind the lock of freezes."""

    def __init__(
        self, installation: Installation, asked: ErasureRequest, result: ErasedClient, shards: range
    ) -> None:
        self._installation, self._request, self._result = installation, asked, result
        self._shards = shards
        self._known = email_erasure.find_in_ledger(installation.kafka, asked.client)
        # A retry whose headers do not tell its origin makes a letter of its own topic.
        topic = installation.kafka.topic("clients")
        self._topics_of_letters = {topic, installation.settings.retry_rules.retry_topic(topic)}

    def run(self) -> None:
        installation, result, client = self._installation, self._result, self._request.client
        weeks = email_erasure.find_in_audiences(installation.tables, client)
        audiences = {audience.week: audience for audience in weeks}
        closed = {IsoWeek.parse(week) for week in week_state.list_closed(installation.tables)}
        entries = {week for week, entry in self._known.entries.items() if entry.state}
        for week in sorted({*entries, *audiences} - closed):
            if result.dry_run:
                self._say(week, audiences.get(week), is_in_ledger=week in entries)
            else:
                self._erase_week(week, audiences.get(week))
        unfrozen = email_erasure.erase_unfrozen(installation.tables, client, dry_run=result.dry_run)
        result.audiences += sorted(unfrozen - {*result.audiences})
        if not result.dry_run:
            self._erase_rows()
            # A run that finds its week not among these comes to its locks after the tables changed.
            begun = {mark.week for mark in week_state.list_marks(installation.tables)}
            frozen = {week.week for week in FrozenWeeks(installation.tables).list_all()}
            not_frozen = {IsoWeek.parse(week) for week in begun - frozen}
            for week in sorted(not_frozen - closed):
                self._erase_week(week, None)
            step("what this machine has kept of the ledger")
            ledger_projection.forget(self._installation, self._known.shard)
        of_letters = letters.rows_with_contact(installation.tables, self._topics_of_letters, client)
        rows = standby_tables.standby_rows_with_contact(installation, client)
        rows |= holders_erasure.rows_with_contact(installation, client)
        result.left = rows | ({DEAD_LETTERS.name: of_letters} if of_letters else {})

    def _erase_week(self, week: IsoWeek, audience: AudienceOfClient | None) -> None:
        locked = week_state.WeekState(self._installation, week).locked(self._shards)
        with postponing(week, self._result.postponed), locked:
            step(f"ledger {week}")
            is_in_ledger = email_erasure.erase_from_ledger(
                self._installation, self._known, week, is_member=bool(audience and audience.files)
            )
            if audience is not None:
                email_erasure.erase_from_audience(
                    self._installation.tables, self._known.client, audience
                )
            self._say(week, audience, is_in_ledger=is_in_ledger)

    def _say(self, week: IsoWeek, audience: AudienceOfClient | None, *, is_in_ledger: bool) -> None:
        if audience is not None:
            self._result.audiences.append(str(week))
        if is_in_ledger and str(week) not in self._result.ledger:
            self._result.ledger.append(str(week))

    def _erase_rows(self) -> None:
        """Erase the contact in the newest snapshot's tables, those beside, and dead letters.

        Under the lock of rebuilds: no other tables come into use in between.
        """
        installation, tables = self._installation, self._result.tables
        client, when = self._request.client, self._request.when
        with postponing("tables", self._result.postponed):
            with rebuilding(installation.files, wait=installation.files.lock_wait):
                step("tables beside")
                tables |= standby_tables.erase_standby_contact(installation, client)
                step("tables")
                tables |= holders_erasure.erase_contact(installation, client, when)
            step("letters")
            if count := letters.erase_contact(installation, self._topics_of_letters, client):
                tables[DEAD_LETTERS.name] = count
