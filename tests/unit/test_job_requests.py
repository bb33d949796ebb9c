"""The one document in which a job is given its request."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost.dead_letters.sweep_job import SweepRequest
from shardpost.errors import UsageError
from shardpost.holders.compaction_job import CompactionRequest
from shardpost.position_import.model.source import FileSource, Format, ImportRequest, JdbcSource
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.order import Action, Order
from shardpost.spark.job_spec import BY_DEFAULT, document_of, request_of
from shardpost.weekly_email.model.email_request import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek

NOW = datetime(2026, 11, 24, 9, 30, 0, 1, tzinfo=UTC)
WEEK = IsoWeek.parse("2020-W53")


@pytest.mark.parametrize(
    "request_",
    [
        CompactionRequest(),
        CompactionRequest(reconcile=True),
        SweepRequest(NOW),
        EmailRequest(WEEK, NOW),
        EmailRequest(WEEK, NOW, Mode.LIST_GROUPS, "-1", is_scheduled=True),
        EmailRequest(
            WEEK, NOW, Mode.DRY_RUN, early=True, as_of=NOW, recipients=Path("/dev/stdout")
        ),
        EmailRequest(WEEK, NOW, again="SUPPRESSED", on_unknown="resend", groups=2),
        ImportRequest(FileSource("/a/\n'\"b.csv", Format.CSV), "-x", now=NOW),
        ImportRequest(JdbcSource("jdbc:x://y", query="SELECT 1"), "Ann", True, "é", 0.2, "", NOW),
        Order(Action.START, "me & you", "", Source.KAFKA, "GB", ()),
        Order(Action.SWAP, "me", "--why=not", tables=("clients",), max_changed=0.01, number=12),
    ],
)
def test_a_request_comes_through_its_document(request_: object) -> None:
    assert request_of(type(request_), document_of(request_)) == request_


def test_without_its_time_the_job_takes_that_of_its_start() -> None:
    document = document_of(EmailRequest(WEEK, NOW), with_now=False)
    assert json.loads(document) == {"week": "2020-W53"}
    assert request_of(EmailRequest, document).now > NOW
    assert document_of(CompactionRequest()) == BY_DEFAULT


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{}", "week: "),
        ('{"week": "2026-W60"}', "week 2026-W60: there is no such week"),
        ('{"week": "2020-W53", "again": "sent"}', "again: .*'FAILED' or 'SUPPRESSED'"),
        ('{"week": "2020-W53", "weak": 1}', "weak: "),
        ("--week", "request --week: "),
    ],
)
def test_a_document_that_is_none_is_refused_by_its_fields(document: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        request_of(EmailRequest, document)


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(UsageError, match="expected text in UTF-8"):
        document_of(Order(Action.SWAP, "me", "\udcff"))
