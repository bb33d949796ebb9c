"""A swap between the freeze of a week and its sending, and while it is sent: real SMTP."""

import json
import time
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from shardpost.delta import snapshots
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_job import WEEKLY_EMAIL
from shardpost.weekly_email.email_run import run
from shardpost.weekly_email.model.email_request import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.job_process import Job, wait_for
from tests.support.mail_server import mail_server
from tests.support.rebuilding import compacted, start, swap
from tests.support.reference import Raw, position, produce

WEEK = IsoWeek.last_ended(datetime.now(UTC))
BEFORE_MS = int(WEEK.end.timestamp() * 1000) - 3_600_000


def contact(client: str, *, subscribed: bool = True) -> Raw:
    form = {"Client": client, "Email": f"{client}@x.example", "Subscribed": subscribed}
    return Raw("clients", client.encode(), json.dumps(form).encode(), BEFORE_MS)


def some(clients: list[str], exchange: str) -> list[Raw]:
    return [position(f"{client}-1", client, exchange, timestamp_ms=BEFORE_MS) for client in clients]


@pytest.mark.timeout(600)
def test_a_mail_run_under_way_stays_on_the_snapshot_that_it_froze(
    settings: Settings, spark: SparkSession
) -> None:
    del spark
    apply_topics(settings)
    here, there = [f"us{n}" for n in range(40)], [f"gb{n}" for n in range(10)]
    produce(settings, [*some(here, "NASDAQ"), *some(there, "LON")])
    produce(settings, [contact(client) for client in (*here, *there)])
    compacted(settings)
    start(settings, "GB")

    def slow(stage: str, _recipient: str) -> None:
        if stage == "end":
            time.sleep(0.05)

    with mail_server(slow) as server:
        mailing = settings.model_copy(update={"smtp_port": server.port, "mail_connections": 1})
        assert run(EmailRequest(WEEK, mode=Mode.FREEZE), mailing)[0] == 0
        produce(settings, [contact("us0", subscribed=False)])
        compacted(settings)
        job = Job(mailing, WEEKLY_EMAIL, EmailRequest(WEEK))
        try:
            wait_for(lambda: server.taken.total() >= 3, "3 mails", job)
            swap(settings)
            assert snapshots.current(settings).country == "GB"
            assert job.wait() == 0, job.log.read_text()
        finally:
            job.kill()
        # Unsubscribed after the freeze, before the swap: the rebuilt table of clients knows it.
        expected = {f"{client}@x.example": 1 for client in here[1:]}
        assert dict(server.taken) == expected
        assert run(EmailRequest(WEEK), mailing)[0] == 0
        assert dict(server.taken) == expected
