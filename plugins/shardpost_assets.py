"""The assets of our DAGs, for DAGs of others, too: `assets().holders`.

Airflow imports this file as the module `shardpost_assets`, for DAGs and its triggerer alike.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from shardpost.errors import UsageError
from shardpost.installation import Installation
from shardpost.orchestration.connections import BOOTSTRAP, task_installation
from shardpost.orchestration.lineage import extra_of
from shardpost.settings import Declared, Settings, declared
from shardpost.settings.forms import STORE, connection_ids
from shardpost.settings.variables import topic_variable
from shardpost.values.topic_names import TopicName

log = logging.getLogger(__name__)

LOOK_SECONDS, EVENT_SECONDS = 5.0, 60.0


class FollowerWatch(BaseEventTrigger):
    """Fires when a compaction that follows has published holders, at most once a minute.

    A task has no way to do that before it ends. After a restart of the triggerer an event may come
    twice; what a follower published last, its task's own event has, too.
    """

    def __init__(self, installation: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._installation = installation

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments from which Airflow recreates the trigger."""
        named = {"installation": self._installation} if self._installation else {}
        return "shardpost_assets.FollowerWatch", named

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield what an event has as extra, each time that there is one, for ever."""
        seen: int | None = None
        # Kept: to open it asks Airflow's secrets backend for all that no setting has.
        opened: Installation | None = None
        while True:
            pause = LOOK_SECONDS
            try:
                if opened is None:
                    own = declared(self._installation)
                    opened = await asyncio.to_thread(task_installation, own)
                number, extra = await asyncio.to_thread(_published, opened, seen)
                if extra:
                    seen, pause = number, EVENT_SECONDS
                    yield TriggerEvent(extra)  # type: ignore[no-untyped-call]
            except Exception as error:
                opened, pause = None, EVENT_SECONDS
                log.warning("%s; trying again in %g s", error, pause)
            await asyncio.sleep(pause)


def _published(opened: Installation, seen: int | None) -> tuple[int | None, dict[str, Any]]:
    """Return the snapshot that a follower published last; unless it was seen, with an extra."""
    from shardpost.delta import snapshots
    from shardpost.holders.following import following

    own = following(opened.files, datetime.now(UTC))
    number = own.published_in if own else None
    if number in (None, seen):
        return number, {}
    return number, extra_of(snapshots.current(opened.tables).as_json())


def _setting(own: Declared, field: str) -> Any:
    """Return a setting for a DAG that is parsed: a wrong one fails its tasks, which say so."""
    try:
        return own.one(field)
    except UsageError:
        return Settings.model_fields[field].default


def topic_uri(own: Declared, name: TopicName) -> str:
    """Return the URI of a topic: with the first server or, where no setting has one, a connection.

    Connections cannot be asked for while DAGs are parsed.
    """
    known, servers = dict[str, str](), connection_ids(_setting(own, "connections"))["kafka"]
    with suppress(UsageError):  # a file that cannot be read, which fails its tasks
        known = own.given()
    if BOOTSTRAP in known:
        local = f"127.0.0.1:{_setting(own, 'kafka_port')}"
        servers = _setting(own, "bootstrap_servers") or local
    topic = known.get(topic_variable(name)) or name
    return f"kafka://{servers.partition(',')[0].strip()}/{topic}"


def table_uri(own: Declared, name: str) -> str:
    """Return the URI of a table's folder."""
    root = str(_setting(own, "tables") or _setting(own, "home") / "tables").rstrip("/")
    return f"{root if root.startswith(STORE) else Path(root).as_uri()}/{name}"


class OwnAssets:
    """The assets of one installation.

    An asset of the same name in a DAG of others takes the events of ours: hence the prefix.
    """

    def __init__(self, own: Declared) -> None:
        watcher = AssetWatcher(name=own.id("following"), trigger=FollowerWatch(own.name))
        uri = topic_uri(own, "share-holders")
        self.holders = Asset(own.id("share_holders"), uri, watchers=[watcher])
        self.snapshots = Asset(own.id("shardpost_snapshots"), table_uri(own, "snapshots"))
        self.audiences = Asset(own.id("shardpost_audiences"), table_uri(own, "audiences"))
        self.letters = Asset(own.id("shardpost_dead_letters"), topic_uri(own, "dead-letters"))
        self.retries = Asset(own.id("shardpost_retries"), topic_uri(own, "retries"))
        self.of_compaction = [self.holders, self.snapshots, self.letters]


def assets(installation: str | None = None) -> OwnAssets:
    """Return the assets of the installation of that name, or of the only one."""
    return OwnAssets(declared(installation))


def value_of(client: str, message: Any) -> str | None:
    """Return a record's value if it is of that client, for the Kafka provider's sensors.

    None is any other record, and goes on waiting; a tombstone is `null`.
    """
    if message.key() != client.encode():
        return None
    value = message.value()
    return "null" if value is None else value.decode()
