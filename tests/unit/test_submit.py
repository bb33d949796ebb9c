"""What a job is asked for, and how it is submitted: here, and so that remote workers reach it."""

import json
import zipfile
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from shardpost.dead_letters.sweep_job import SweepRequest
from shardpost.errors import UsageError
from shardpost.holders.compaction_job import CompactionRequest
from shardpost.position_import.model.source import FileSource, Format, ImportRequest, JdbcSource
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.order import Action, Order
from shardpost.settings import Settings
from shardpost.spark.job_spec import BY_DEFAULT, document_of, request_of
from shardpost.spark.submit import job_environment, submit_command
from shardpost.weekly_email.model.email_request import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek

LOCAL = ("local", "local[2]", "local[*]", "local-cluster[1,1,1024]")
REMOTE = ("spark://10.0.0.5:7077", "yarn", "k8s://https://10.0.0.5:6443")


def settings_with(master: str, home: Path) -> Settings:
    return Settings.model_validate({"home": home, "spark_master": master})


@pytest.mark.parametrize("master", LOCAL)
def test_with_a_local_master_everything_stays_on_loopback(master: str, tmp_path: Path) -> None:
    settings = settings_with(master, tmp_path)
    command = submit_command(settings, {"a": "b"})
    assert job_environment(settings)["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert {"a=b", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"} <= {
        *command
    }
    assert "--py-files" not in command


@pytest.mark.parametrize("own", [None, "10.0.0.7"])
@pytest.mark.parametrize("master", REMOTE)
def test_with_a_remote_master_the_driver_is_where_its_workers_reach_it(
    master: str, own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if own:
        monkeypatch.setenv("SPARK_LOCAL_IP", own)
    else:
        monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    settings = settings_with(master, tmp_path)
    assert job_environment(settings).get("SPARK_LOCAL_IP") == own
    assert not [part for part in submit_command(settings, {"a": "b"}) if "127.0.0.1" in part]


def test_remote_workers_are_sent_the_package(tmp_path: Path) -> None:
    command = submit_command(settings_with(REMOTE[0], tmp_path), {"a": "b"})
    [sent] = [after for part, after in pairwise(command) if part == "--py-files"]
    assert "shardpost/holders/model/fields.py" in zipfile.ZipFile(sent).namelist()


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
