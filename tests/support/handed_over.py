"""Mails that were handed to SMTP, by what a run does before and after it: looks, plan, ledger."""

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from shardpost.delta import snapshots
from shardpost.holders.spark.held_positions import contact_of, holding_of
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.weekly_email import own_templates
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.own_templates import TemplateSettings, templates_of
from shardpost.weekly_email.prepared_week import PreparedWeek
from shardpost.weekly_email.send_plan import MailToSend, SendPlan
from shardpost.weekly_email.smtp_server import SenderSettings, SmtpServer
from shardpost.weekly_email.week_state import WeekState
from tests.support.installed import installed
from tests.support.members import MEMBERS
from tests.support.written_weeks import begin


@dataclass
class Run:
    """A run of a week that mails one client, without a mail server."""

    settings: Settings
    week: IsoWeek
    client: str
    now: datetime
    again: bool = False

    def hand_over(self) -> Mail:
        """Write `sending`; return the mail."""
        begin(self.settings, self.week, self.now)
        self.keep_look()
        prepared = self._prepared()
        index = LedgerIndex.fold(self._ledger().entries())
        policy = ResendPolicy(again_failed=self.again)
        plan = SendPlan(index, policy, prepared.context, lambda: self.now, lambda _: False)
        [step] = plan.steps([self._member(prepared)])
        assert isinstance(step, MailToSend)
        self._write(step.entry(DeliveryState.SENDING))
        self.step = step
        return step.mail

    def send(self) -> Mail:
        """Write `sending` and `sent`; return the mail."""
        mail = self.hand_over()
        self._write(self.step.entry(DeliveryState.SENT))
        return mail

    def keep_look(self) -> None:
        """Keep by what this run writes, and mail nobody."""
        own_templates.keep_look(
            installed(self.settings).tables,
            self._prepared().context,
            self._prepared().shards,
            self.now,
        )

    def fail(self) -> None:
        """Write `sending` and `failed`."""
        self.hand_over()
        self._write(self.step.entry(DeliveryState.FAILED, "550 no"))

    def _ledger(self) -> Ledger:
        return Ledger(
            installed(self.settings), self.week, partition_of(self.client, self.settings.partitions)
        )

    def _write(self, entry: LedgerEntry) -> None:
        with closing(self._ledger()) as ledger:
            ledger.open()
            ledger.write([entry])

    def _prepared(self) -> PreparedWeek:
        newest, frozen = (
            snapshots.current(installed(self.settings).tables),
            FrozenWeeks(installed(self.settings).tables).find(self.week),
        )
        as_of = frozen.as_of if frozen else self.week.held_at(self.now, newest.looked_at)
        at = installed(self.settings)
        state = WeekState(at, self.week)
        ledger, shards = state.require_ledger(), [*range(self.settings.partitions)]
        sender = at.values(SenderSettings).sender(at.values(SmtpServer))
        templates = templates_of(at.values(TemplateSettings))
        return PreparedWeek(state, ledger, as_of, sender, newest, shards, frozen, templates)

    def _member(self, prepared: PreparedWeek) -> pa.RecordBatch:
        frozen, newest = prepared.frozen, prepared.snapshot
        contact = contact_of(installed(self.settings).tables, newest, self.client)
        assert contact is not None
        if frozen is not None:
            row = FrozenWeeks(installed(self.settings).tables).member(frozen, self.client) or {}
        else:
            positions, _ = holding_of(
                installed(self.settings).tables, newest, prepared.as_of, self.client
            )
            row = {**contact._asdict(), "has_contact": True, "positions": positions}
        now = {"subscribed": True, "name_now": contact.name, "email_now": contact.email}
        return pa.RecordBatch.from_pylist([row | now | {"client": self.client}], MEMBERS)
