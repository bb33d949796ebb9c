"""The weekly e-mail, beside a bare loop of smtplib over as many connections to the same sink."""

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import kafka
from bench.measured import Measured, run
from bench.ours import Ours
from bench.stream import Record
from bench.table import Case, markdown
from shardpost.embedded import daemons, sink
from shardpost.settings import Settings
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.spark.audience_freeze import SHARDS_AT_ONCE

TO = re.compile(rb"^To: .*?(c\d+)@", re.MULTILINE)
EXCHANGES = ("NASDAQ", "NYSE")


def measure(settings: Settings, clients: int, runs: int) -> None:
    """Mail that many clients, so many weeks, and the same mails by a bare loop; print the table."""
    ours = _prepared(settings, clients, runs)
    mail = ours.settings.home / "mail"
    whole = Case("`shardpost email`, start to end", clients)
    sending = Case("of which: first to last mail", clients)
    bare = Case("a bare loop of smtplib", clients)
    sink.start(ours.settings)
    try:
        for week in _weeks(runs):
            print(f"{clients:,} mails of {week}", flush=True)
            found = ours.command("email", "--week", str(week))
            whole.add(found)
            sending.add(Measured(_first_to_last(mail, clients), {}, ""))
            samples = _put_away(mail, f"mail-{week}")
            bare.add(_bare_loop(ours.settings, samples))
            _first_to_last(mail, clients)
            _put_away(mail, f"bare-{week}")
    finally:
        sink.stop(ours.settings)
    shutil.rmtree(ours.settings.home)
    print("\n" + markdown([case.cells([bare]) for case in (whole, sending, bare)]))


def _prepared(settings: Settings, clients: int, runs: int) -> Ours:
    """Compact clients that have held two positions each since before the first of the weeks."""
    topic = f"mail-positions-{clients}"
    ours = Ours(settings, f"mails-{clients}", topic)
    sink_port = {"smtp_port": daemons.choose_port(), "smtp_host": None}
    ours.settings = ours.settings.model_copy(update=sink_port)
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    ours.reset()
    at = int(_weeks(runs)[0].start.timestamp() * 1000)
    kafka.produce(settings, topic, _positions(clients, at))
    kafka.produce(settings, ours.settings.topic("clients"), contacts(clients, "c{}", at))
    ours.compact()
    return ours


def _weeks(count: int) -> list[IsoWeek]:
    """Return the last weeks that have ended, the earliest first."""
    now = datetime.now(UTC)
    return [IsoWeek.of(now - timedelta(weeks=back)) for back in range(count, 0, -1)]


def _positions(clients: int, at: int) -> Iterator[Record]:
    for number in range(2 * clients):
        form = {"Client": f"c{number // 2}", "Ticker": "AAPL", "Amount": number}
        yield str(number), json.dumps({**form, "Exchange": EXCHANGES[number % 2]}), at


def contacts(clients: int, name: str, at: int) -> Iterator[Record]:
    """Yield the contacts of so many clients, of names such as "c{}"."""
    for number in range(clients):
        form = {"Name": f"Client {number}", "Email": f"c{number}@example.com", "Subscribed": True}
        yield name.format(number), json.dumps(form), at


def _put_away(mail: Path, name: str) -> Path:
    """Begin an empty folder of mails.

    Nothing is deleted between the runs: for a minute ext4 goes through all inodes that were deleted
    before it makes a new file, which doubled what the sink took of the processor.
    """
    away = mail.rename(mail.with_name(name))
    mail.mkdir()
    return away


def _first_to_last(mail: Path, clients: int) -> float:
    """Return the seconds from the first to the last mail, once it is sure that each has one."""
    names = [entry.name for entry in os.scandir(mail) if entry.name.endswith(".eml")]
    counts = Counter(TO.findall((mail / name).read_bytes())[0] for name in names)
    if len(counts) != clients or set(counts.values()) != {1}:
        raise RuntimeError(
            f"expected one mail for each of {clients}, found {len(names)} mails for {len(counts)}"
        )
    first, last = (_at(name) for name in (min(names), max(names)))
    return (last - first).total_seconds()


def _at(name: str) -> datetime:
    return datetime.strptime(name.split("-")[0], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)


def _bare_loop(settings: Settings, samples: Path) -> Measured:
    """Send the same mails again, with neither ledger nor anything else."""
    shards = min(kafka.PARTITIONS, max(SHARDS_AT_ONCE, os.cpu_count() or 1))
    connections = settings.mail_connections * shards
    command = [sys.executable, "-m", "bench.bare_loop", str(settings.smtp_port), str(samples)]
    environ = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    return run([*command, str(connections)], environ, settings.home)
