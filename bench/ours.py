"""Shardpost's side: tables and topics of its own, compacted by the command as users run it."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from bench import kafka
from bench.measured import Measured, kill_when, run
from shardpost.checkout import CHECKOUT
from shardpost.settings import Settings
from shardpost.spark import submit as spark_submit
from shardpost.spark.jars import archive_options
from shardpost.spark.job import JobSpec, document_of
from shardpost.topics.creation import apply_topics
from shardpost.values.topic_names import TopicName
from tests.support.installed import installed

SHARDPOST = Path(sys.executable).parent / "shardpost"
STEP = re.compile(r"^(\S+ \S+) INFO step: (.+)$", re.MULTILINE)
# The inputs are brought up to date side by side.
BESIDE = re.compile("(positions|clients|exchanges) (history|table)")
AT = "%Y-%m-%d %H:%M:%S,%f"


class Ours:
    """One application: its tables, its topics beside the common input."""

    def __init__(
        self, settings: Settings, name: str, topic: str, inputs: Path | None = None
    ) -> None:
        self.settings = settings.model_copy(
            update={
                "home": settings.home / name,
                "bootstrap_servers": settings.bootstrap,
                "topics": settings.topics
                | {
                    "positions": topic,
                    "clients": f"{name}-clients",
                    "exchanges": f"{name}-exchanges",
                    "share-holders": f"{name}-share-holders",
                    "weekly-emails": f"{name}-weekly-emails",
                },
                "partitions": kafka.PARTITIONS,
                "driver_memory": "3g",
                "inputs": inputs,
            }
        )

    def reset(self) -> None:
        """Start from nothing: no tables, empty output; NASDAQ, NYSE and AMEX count."""
        shutil.rmtree(self.settings.home, ignore_errors=True)
        self.settings.home.mkdir(parents=True)
        own: tuple[TopicName, ...] = ("clients", "exchanges", "share-holders", "weekly-emails")
        kafka.delete(self.settings, [self.settings.topic(name) for name in own])
        kafka.forget(
            self.settings, ("shardpost-publish", "shardpost-owner", "shardpost-compaction")
        )
        plain = self.settings.model_copy(update={"inputs": None})  # as exchanges are in each form
        apply_topics(installed(plain))

    def warm_up(self) -> None:
        """Compact what stands there at the start: the first job after set-up makes an archive."""
        kafka.create(self.settings, self.settings.topic("positions"))
        self.reset()
        self.compact()

    def compact(self) -> Measured:
        """Run one compaction."""
        return self.command("compact")

    def command(self, *arguments: str) -> Measured:
        """Run one command of Shardpost."""
        return run([str(SHARDPOST), *arguments], self._environ, self.settings.home)

    def floor(self, job: str) -> Measured:
        """Let Spark do less with the topic of positions, started as a compaction is."""
        return self.script(job, self.settings.topic("positions"), str(self.settings.home / job))

    def script(self, name: str, *arguments: str) -> Measured:
        """Run a file of the benchmarks, started as a long compaction is."""
        java = (*spark_submit.LONG_RUN_JIT, *archive_options())
        file = Path(__file__).with_name(f"{name}.py")
        return self._submitted(spark_submit.submit_conf(*java), file, *arguments)

    def job(self, job: JobSpec, request: object) -> Measured:
        """Run a job as its DAG does."""
        conf = spark_submit.job_conf(installed(self.settings), job, *archive_options())
        return self._submitted(conf, spark_submit.job_file(job), document_of(request))

    def _submitted(self, conf: dict[str, str], file: Path, *arguments: str) -> Measured:
        home = self.settings.home
        submit = spark_submit.submit_command(installed(self.settings), conf, home)
        environ = spark_submit.job_environment(installed(self.settings)) | {
            "PYTHONPATH": str(CHECKOUT)
        }
        # What the driver says is on Spark's standard output.
        command = [*submit, str(file), *arguments]
        return run(["/bin/sh", "-c", 'exec "$@" >&2', "sh", *command], environ, home)

    def compact_killed(self) -> None:
        """End a compaction by SIGKILL while it writes the history, before its commit."""
        said = "INFO step: positions history"
        kill_when([str(SHARDPOST), "compact"], self._environ, self.settings.home, said)

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.settings.environ()}


def steps(log: str) -> Iterator[tuple[str, float]]:
    """Yield (step, seconds until the next began) as a compaction's log has them."""
    for (at, name), (until, _) in pairwise(step_starts(log)):
        yield name, until - at


def parts(log: str) -> dict[str, float]:
    """Return {part: seconds}: as `steps`, those together that run side by side or in turn."""
    found: dict[str, float] = {}
    for name, seconds in steps(log):
        found[part_of(name)] = found.get(part_of(name), 0.0) + seconds
    return found


def part_of(step: str) -> str:
    """Return the part of a compaction that a step belongs to."""
    if BESIDE.fullmatch(step):
        return "inputs"
    return "publish" if step == "batch published" else step


def step_starts(log: str) -> Iterator[tuple[float, str]]:
    """Yield (seconds since 1970, step) where each begins, as a log has them in local time."""
    for at, name in STEP.findall(log):
        yield datetime.strptime(at, AT).timestamp(), name  # noqa: DTZ007
