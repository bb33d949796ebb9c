"""Who follows the inputs: a compaction that stays, as status, metrics and the page report it.

It says in a shared file how far it came. Of two that follow, the younger takes over: the older one
ends as soon as it sees that.
"""

import socket
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shardpost.delta.snapshot import MOST_AHEAD
from shardpost.locks.process_identity import ProcessIdentity
from shardpost.locks.shared_files import Files, SharedFile
from shardpost.wording import duration_text

FOLLOWING = "following.json"
# It says at least so often that it is there; who was silent three times as long is not.
NOTED_EVERY = timedelta(minutes=1)
SILENT_AFTER = 3 * NOTED_EVERY
# Only a turn of many records may take so long.
HANGS_AFTER = timedelta(minutes=30)


@dataclass(frozen=True)
class FollowerHeartbeat:
    """A compaction that stays: an id of its own, on which machine, and since when.

    `noted_at` is when it last said so. `turns` made a snapshot each: the last of them ended at
    `turn_at`, and took `seconds`. `published_in`: the snapshot by which it last published holders.
    """

    run: str
    holder: str
    since: datetime
    noted_at: datetime
    process: ProcessIdentity
    turns: int = 0
    turn_at: datetime | None = None
    seconds: float | None = None
    published_in: int | None = None

    def is_there(self, now: datetime) -> bool:
        """Tell whether its heartbeat is recent, and it is not known to have ended.

        A heartbeat from a clock that was ahead does not count as recent.
        """
        return not self.process.is_gone and -MOST_AHEAD <= now - self.noted_at < SILENT_AFTER

    def summary(self, now: datetime) -> str:
        """Return since when it follows, and how its last turn was."""
        since = f"followed for {duration_text(now - self.since)}"
        if self.turn_at is None or self.seconds is None:
            return f"{since}; nothing new yet"
        ago = duration_text(now - self.turn_at)
        return f"{since}; the last turn took {self.seconds:g} s, {ago} ago"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        found: dict[str, Any] = _DOCUMENT.dump_python(self, mode="json")
        return found


_DOCUMENT = TypeAdapter(FollowerHeartbeat)


def begun(files: Files, now: datetime) -> FollowerHeartbeat:
    """Return this process as a follower that begins now, younger than all others."""
    before, process = following(files, now), ProcessIdentity.own()
    since = max(now, before.since + timedelta.resolution) if before else now
    holder = f"{socket.gethostname()}, process {process.pid}"
    return FollowerHeartbeat(str(uuid.uuid4()), holder, since, now, process)


def following(files: Files, now: datetime) -> FollowerHeartbeat | None:
    """Return the current follower; None if no heartbeat is recent."""
    found = _of(SharedFile(files, FOLLOWING).read())
    return found if found and found.is_there(now) else None


def silent_follower(files: Files, now: datetime, since: datetime) -> FollowerHeartbeat | None:
    """Return the follower that stopped saying that it is there, and is not known to have ended.

    `since` is when a compaction last looked at the inputs: one after it makes it no matter.
    """
    found = _of(SharedFile(files, FOLLOWING).read())
    if found is None or found.process.is_gone or now - found.noted_at < SILENT_AFTER:
        return None
    return found if since <= found.noted_at + SILENT_AFTER else None


def successor(files: Files, own: FollowerHeartbeat, now: datetime) -> FollowerHeartbeat | None:
    """Return the follower that replaces this one, if any."""
    return _successor(own, following(files, now))


def note(files: Files, own: FollowerHeartbeat) -> None:
    """Write this follower's heartbeat, unless a younger one follows."""
    file = SharedFile(files, FOLLOWING)
    other = _successor(own, _of(file.read()))
    if other is None or not other.is_there(own.noted_at):
        file.write(_DOCUMENT.dump_json(own).decode())


def forget(files: Files, own: FollowerHeartbeat) -> None:
    """Remove this follower's heartbeat, unless it is another follower's."""
    file = SharedFile(files, FOLLOWING)
    noted = _of(file.read())
    if noted is not None and noted.run == own.run:
        file.remove()


def _successor(own: FollowerHeartbeat, other: FollowerHeartbeat | None) -> FollowerHeartbeat | None:
    is_successor = other is not None and other.run != own.run and other.since > own.since
    return other if is_successor else None


def _of(text: str | None) -> FollowerHeartbeat | None:
    try:
        return _DOCUMENT.validate_json(text) if text else None
    except ValidationError:  # of another release
        return None
