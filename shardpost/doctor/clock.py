"""The clock of this machine, against what others have written: nothing may be from the future.

Other clocks are not asked, only read: what they wrote last is from before now, if this clock is
right. So a clock that is ahead is not seen here, nor one that is behind while nothing is written.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shardpost.doctor.finding import Finding, ok, unknown, warning
from shardpost.errors import ShardpostError
from shardpost.kafka.offsets import newest_time
from shardpost.kafka.topic_metadata import is_reachable
from shardpost.settings import Settings

TOLERANCE = timedelta(seconds=5)
CURE = "sync this machine's clock, and those of the brokers (timedatectl set-ntp true)"
FOLDERS = ("locks", "logs", "run", "stores")


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Compare with the newest file of the home, and with the newest letter that a broker took."""
    yield compare(
        "clock of the disk", f"files in {settings.home}", _newest_file(settings.home), now
    )
    yield _of_broker(settings)


def compare(check_name: str, what: str, newest: datetime | None, now: datetime) -> Finding:
    """Check that what was written last is not from the future."""
    if newest is None:
        return unknown(check_name, f"{what}: there are none to compare with")
    if newest - now > TOLERANCE:
        ahead = f"the newest of {what} is {(newest - now).total_seconds():.0f} s in the future"
        return warning(check_name, ahead, "none from the future", CURE)
    return ok(check_name, f"none of {what} is from the future")


def _of_broker(settings: Settings) -> Finding:
    name, topic = "clock of kafka", settings.topic("dead-letters")
    if not is_reachable(settings, settings.kafka_timeout):
        return unknown(name, "not checked: Kafka does not answer")
    try:
        newest = newest_time(settings, topic)
    except ShardpostError as problem:
        return unknown(name, str(problem))
    return compare(name, f"letters in {topic}", newest, datetime.now(UTC))


def _newest_file(home: Path) -> datetime | None:
    paths = [path for folder in FOLDERS for path in (home / folder).glob("*")]
    newest = max((path.stat().st_mtime for path in paths), default=None)
    return None if newest is None else datetime.fromtimestamp(newest, UTC)
