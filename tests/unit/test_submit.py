"""What a job is asked for, how it is submitted, and with which Java and archive of classes."""

import json
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS, SweepRequest
from shardpost.embedded.broker import find_java, java_major
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.compaction_job import (
    CHECK_INPUTS,
    COMPACT_POSITIONS,
    RECONCILE_POSITIONS,
)
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.imports.model.source import FileSource, Format, ImportRequest, JdbcSource
from shardpost.kafka.kafka import Kafka
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES, Action, RebuildRequest
from shardpost.settings import Settings
from shardpost.spark import driver, jars, submit
from shardpost.spark.job import BY_DEFAULT, JobSpec, document_of, request_of
from shardpost.spark.submit import job_environment, submit_command
from shardpost.weekly_email import prepared_week
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest, Mode, ResendPolicy
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed

LOCAL = ("local", "local[2]", "local[*]", "local-cluster[1,1,1024]")
REMOTE = ("spark://10.0.0.5:7077", "yarn", "k8s://https://10.0.0.5:6443")


def settings_with(master: str, home: Path) -> Settings:
    return Settings.model_validate({"home": home, "spark_master": master})


@pytest.mark.parametrize("master", LOCAL)
def test_with_a_local_master_everything_stays_on_loopback(master: str, tmp_path: Path) -> None:
    settings = settings_with(master, tmp_path)
    command = submit_command(installed(settings), {"a": "b"}, tmp_path)
    assert job_environment(installed(settings))["SPARK_LOCAL_IP"] == "127.0.0.1"
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
    assert job_environment(installed(settings)).get("SPARK_LOCAL_IP") == own
    command = submit_command(installed(settings), {"a": "b"}, tmp_path)
    assert not [part for part in command if "127.0.0.1" in part]


def test_with_tables_on_a_store_a_job_has_its_jars_and_address_and_no_argument_has_a_key(
    tmp_path: Path,
) -> None:
    given = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "eu-x"}
    at = {"home": tmp_path, "tables": "s3://bucket/tables", "store": given}
    job = JobSpec("job")
    local = submit.job_conf(installed(Settings(home=tmp_path)), job)
    settings = Settings.model_validate(at)
    conf = submit.job_conf(installed(settings), job)
    assert "hadoop-aws" in conf["spark.jars"]
    assert "hadoop-aws" not in local["spark.jars"]
    # So that the class archive is that of all jobs.
    assert conf["spark.driver.extraClassPath"] == local["spark.driver.extraClassPath"]
    assert conf["spark.hadoop.fs.s3a.endpoint.region"] == "eu-x"
    said = " ".join(submit_command(installed(settings), conf, tmp_path))
    assert not [secret for secret in ("an-id", "hush") if secret in said]
    assert given.items() <= job_environment(installed(settings)).items()


@pytest.mark.parametrize(
    ("inputs", "has_them"),
    [
        ("clients: {format: avro, registry: {url: 'http://r'}}", True),
        ("clients: {format: json, key_format: avro, registry: {url: 'http://r'}}", True),
        ("clients: {format: json-schema, registry: {url: 'http://avro'}}", False),
        ("clients: {fields: {Name: avro}}", False),
    ],
)
def test_a_job_that_decodes_inputs_in_avro_has_its_jars_and_limits(
    tmp_path: Path, inputs: str, has_them: bool
) -> None:
    file = tmp_path / "inputs.yaml"
    file.write_text(inputs)
    own = installed(Settings(home=tmp_path, inputs=file))
    for job in (COMPACT_POSITIONS, RECONCILE_POSITIONS, CHECK_INPUTS, REBUILD_TABLES):
        conf = submit.job_conf(own, replace(job, unread_records=lambda _: 0))
        assert ("spark-avro" in conf["spark.jars"]) is has_them
        assert ("spark.executor.extraJavaOptions" in conf) is has_them
    assert "spark-avro" not in submit.job_conf(own, WEEKLY_EMAIL)["spark.jars"]


def test_remote_workers_are_sent_the_package(tmp_path: Path) -> None:
    command = submit_command(installed(settings_with(REMOTE[0], tmp_path)), {"a": "b"}, tmp_path)
    [sent] = [after for part, after in pairwise(command) if part == "--py-files"]
    assert "shardpost/holders/model/fields.py" in zipfile.ZipFile(sent).namelist()


PROPERTIES = """\
# as spark-defaults.conf has it
spark.driver.port 7078
spark.pyspark.python=/opt/executors/bin/python
  spark.ui.enabled : true
spark.authenticate.secret hush
"""


@pytest.mark.parametrize("master", [LOCAL[0], REMOTE[0]])
def test_what_a_file_of_properties_sets_counts_but_a_local_driver_stays_local(
    master: str, tmp_path: Path
) -> None:
    file = tmp_path / "spark.conf"
    file.write_text(PROPERTIES)
    settings = settings_with(master, tmp_path).model_copy(update={"spark_conf": file})
    command = submit_command(installed(settings), submit_conf_without_jars(), tmp_path)
    assert ("--properties-file", str(file)) in pairwise(command)
    own = {part.partition("=")[0] for part in command if part.startswith("spark.")}
    assert "spark.pyspark.driver.python" in own
    assert own.isdisjoint({"spark.driver.port", "spark.ui.enabled"})
    assert ("spark.pyspark.python" in own) == (master in LOCAL)
    assert "hush" not in " ".join(command)


def submit_conf_without_jars() -> dict[str, str]:
    names = ("spark.pyspark.driver.python", "spark.pyspark.python", "spark.ui.enabled")
    return dict.fromkeys(names, "ours")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("spark.master spark://other:7077", "spark.master: expected none: set SHARDPOST_SPARK_MAS"),
        ("spark.speculation=true", "spark.speculation: expected none: a mail or a letter must not"),
        ("spark.sql.ansi.enabled false", "spark.sql.ansi.enabled: expected none: Shardpost sets"),
        (None, "cannot be read: .*No such file"),
    ],
)
def test_a_file_of_properties_is_refused_by_the_names_that_it_may_not_set(
    line: str | None, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "spark.conf"
    if line is not None:
        file.write_text(PROPERTIES + line)
    settings = settings_with(REMOTE[0], tmp_path).model_copy(update={"spark_conf": file})
    with pytest.raises(UsageError, match=rf"^{file} \(SHARDPOST_SPARK_CONF\): {why}"):
        submit_command(installed(settings), {}, tmp_path)


NOW = datetime(2026, 11, 24, 9, 30, 0, 1, tzinfo=UTC)
WEEK = IsoWeek.parse("2020-W53")


@pytest.mark.parametrize(
    "request_",
    [
        CompactionRequest(),
        CompactionRequest(reconcile=True),
        SweepRequest(NOW),
        EmailRequest(WEEK, NOW),
        EmailRequest(WEEK, NOW, Mode.LIST_GROUPS, "0-3", is_scheduled=True),
        EmailRequest(
            WEEK, NOW, Mode.DRY_RUN, early=True, as_of=NOW, recipients=Path("/dev/stdout")
        ),
        EmailRequest(WEEK, NOW, again="SUPPRESSED", on_unknown="resend", is_part=True),
        ImportRequest(FileSource("/a/\n'\"b.csv", Format.CSV), "-x", now=NOW),
        ImportRequest(
            JdbcSource("jdbc:x://y", query="SELECT 1"), "Ann", True, "é", 0.2, "", now=NOW
        ),
        RebuildRequest(Action.START, "me & you", "", Source.KAFKA, "GB", ()),
        RebuildRequest(
            Action.SWAP, "me", "--why=not", tables=("clients",), max_changed=0.01, number=12
        ),
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
        document_of(RebuildRequest(Action.SWAP, "me", "\udcff"))


COMPACTION, SWEEP, EMAIL = COMPACT_POSITIONS, SWEEP_DEAD_LETTERS, WEEKLY_EMAIL


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty folder of archives in which any file is large enough."""
    monkeypatch.setattr(jars, "ARCHIVE_FOLDER", tmp_path)
    monkeypatch.setattr(jars, "MIN_ARCHIVE_BYTES", 4)
    return tmp_path


def run(job: JobSpec, leaves: bytes = b"classes") -> str:
    """Run a job whose JVM leaves those bytes if asked for an archive; return what it was asked."""
    with jars.class_archive(job) as archive:
        if archive.dump_to:
            archive.dump_to.write_bytes(leaves)
        archive.keep()
        return " ".join(archive.jvm_options).partition("=")[0]


def read_by(job: JobSpec) -> Path:
    """Return the archive that a job's JVM would read."""
    with jars.class_archive(job) as archive:
        return archive.path


def test_the_first_job_makes_one_and_the_next_reads_it() -> None:
    assert jars.archive_options() == ()
    assert run(SWEEP) == "-XX:ArchiveClassesAtExit"
    assert run(SWEEP) == run(EMAIL) == "-XX:SharedArchiveFile"
    assert jars.archive_options() == (f"-XX:SharedArchiveFile={read_by(SWEEP)}",)


def test_a_compaction_makes_a_better_one_that_all_read() -> None:
    run(SWEEP)
    small = read_by(SWEEP)
    assert run(COMPACTION) == "-XX:ArchiveClassesAtExit"
    assert run(COMPACTION) == run(SWEEP) == "-XX:SharedArchiveFile"
    assert read_by(SWEEP) == read_by(COMPACTION) != small


def test_after_a_compaction_no_other_job_makes_one() -> None:
    run(COMPACTION)
    assert run(SWEEP) == "-XX:SharedArchiveFile"


def test_what_a_jvm_without_spark_leaves_is_not_kept(folder: Path) -> None:
    run(COMPACTION, leaves=b"jvm")
    assert list(folder.iterdir()) == []
    assert jars.archive_options() == ()


def test_a_folder_that_is_not_ours_to_write_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    run(COMPACTION)
    assert list(folder.iterdir()) == []


def test_with_a_folder_of_settings_in_the_class_path_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert run(COMPACTION) == ""
    monkeypatch.delenv("SPARK_CONF_DIR")
    run(COMPACTION)
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert run(SWEEP) == ""
    assert jars.archive_options() == ()


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Da=b\nopenjdk version "17.0.1"', 17),
        ("The operation couldn't be completed", None),
    ],
)
def test_the_major_version_is_read(said: str, version: int | None) -> None:
    assert java_major(said) == version


def java_that_says(folder: Path, version: str) -> str:
    (folder / "bin").mkdir()
    file = folder / "bin" / "java"
    file.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    file.chmod(0o755)
    return str(file)


def test_the_java_of_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = java_that_says(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == file


@pytest.mark.parametrize("version", ["11.0.2", "25.0.1"])
def test_a_java_that_spark_does_not_run_on_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java_that_says(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        ShardpostError, match=r"is Java \d+, expected Java 17 to 21: install Java 17 or 21"
    ):
        find_java()


def test_no_java_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ShardpostError, match="no java in PATH: install Java 17"):
        find_java()


def test_who_waits_for_spark_is_told_before_it_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[list[str]] = []

    def run_job(*_: object, **__: object) -> int:
        told.append([*caplog.messages])
        return 0

    monkeypatch.setattr(Kafka, "require_listening", lambda _: None)
    monkeypatch.setattr(prepared_week, "preview_week", lambda *_: told.append([*caplog.messages]))
    monkeypatch.setattr(submit, "run_job", run_job)
    with caplog.at_level("INFO"):
        CommandLineHere(settings.environ()).run("email", "--week", "2026-W40")
    checking = "weekly_email 2026-W40: checking its snapshot and its ledger"
    starting = "weekly_email: starting Spark, which takes a few seconds"
    assert told == [[checking], [checking, starting]]


@pytest.mark.parametrize(("code", "exit_code"), [(1, 1), (2, 2), (3, 3), (0, 1)])
def test_without_a_result_the_exit_code_is_the_jobs_and_never_0(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, code: int, exit_code: int
) -> None:
    monkeypatch.setattr(Kafka, "require_listening", lambda _: None)
    monkeypatch.setattr(submit, "run_job", lambda *_, **__: code)
    assert submit.submit(installed(settings), JobSpec("no_such_job")) == (exit_code, None)


@pytest.mark.parametrize(
    ("records", "cores", "tasks"),
    [(200_000, 2, 2), (200_001, 2, 8), (50_000_000, 2, 25), (50_000_000, 64, 256)],
)
def test_a_task_of_a_shuffle_has_two_million_records_at_most_and_each_core_has_some(
    records: int, cores: int, tasks: int
) -> None:
    spark = Mock(**{"sparkContext.defaultParallelism": cores})
    driver.divide_shuffles(spark, records)
    spark.conf.set.assert_called_once_with("spark.sql.shuffle.partitions", tasks)


def test_unknown_deliveries_are_mailed_again_only_where_that_is_said() -> None:
    silent, said = EmailRequest(WEEK), EmailRequest(WEEK, on_unknown="resend")
    assert silent.resend_policy("hold") == EmailRequest(WEEK, on_unknown="hold").resend_policy(
        "resend"
    )
    assert silent.resend_policy("resend") == said.resend_policy("hold")
    assert silent.resend_policy("hold") == ResendPolicy(False, False, False)
    assert said.resend_policy("hold") == ResendPolicy(True, False, False)
