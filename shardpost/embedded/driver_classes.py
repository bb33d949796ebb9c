"""The class archive of Spark's drivers: most of a small run is spent on loading classes without it.

`make setup` makes it: it plays both jobs once in one JVM, on a broker and a mail sink of their own,
and that JVM writes down at its end which classes it had loaded. What it does shows in the log of
`make setup`.
"""

import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from datetime import UTC, datetime

from shardpost.adapters import kafka, spark_submit
from shardpost.embedded import ports, stack
from shardpost.embedded.story import CLOSED, CONTACTS, MOVED, POSITIONS, Record
from shardpost.settings import Settings, load

SECONDS = 300


def make() -> None:
    """Write the archive anew, or none."""
    spark_submit.CLASSES.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="shardpost-") as folder:
        own = {f"{part}_port": ports.choose() for part in ("kafka", "smtp", "airflow")}
        settings = Settings.model_validate({"home": folder, "partitions": 2, **own})
        try:
            stack.up(settings, with_airflow=False, say=print)
            _archive(settings)
        finally:
            stack.down(settings, say=print)


def _archive(settings: Settings) -> None:
    into = spark_submit.CLASSES.with_suffix(".new")
    conf = spark_submit.submit_conf((f"-XX:ArchiveClassesAtExit={into}",))
    subprocess.run(
        [*spark_submit.command(settings, conf), __file__, "play"],
        env=spark_submit.environment(settings),
        cwd=settings.home,
        check=True,
        timeout=SECONDS,
    )
    into.replace(spark_submit.CLASSES)


def play() -> None:
    """Run the jobs, as the driver of this process's JVM."""
    from spark_jobs import compact_positions, weekly_email

    settings = load()
    for records in ((*CONTACTS, *POSITIONS), (MOVED, CLOSED)):
        _produce(settings, records)
        compact_positions.compact(Namespace(), settings)
    now = datetime.now(UTC)
    week = f"{now:%G-W%V}"
    asked = weekly_email.parser().parse_args(["--week", week, "--early", "--now", now.isoformat()])
    weekly_email.weekly_email(asked, settings)


def _produce(settings: Settings, records: tuple[Record, ...]) -> None:
    producer = kafka.producer(settings)
    for topic, key, form in records:
        value = None if form is None else json.dumps(form)
        producer.produce(settings.topic(topic), key=key, value=value)
    producer.flush(settings.kafka_timeout)


if __name__ == "__main__":
    play() if sys.argv[1:] == ["play"] else make()
