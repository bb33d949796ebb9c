"""The embedded stack as a whole: up, down and status."""

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from shardpost.embedded import airflow, broker, daemons, sink
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.topic_metadata import is_reachable
from shardpost.locks.locks import LockedError, exclusive_here
from shardpost.settings import Settings
from shardpost.spark.jars import jars_of
from shardpost.topics.creation import create_topics

FREE_BYTES = 1024**3
EXTERNAL_SECONDS = 5.0
UP, DOWN = "up", "down"
RESTART = "shardpost down && shardpost up"
LOCK = "stack"
NOTHING_UP = "nothing is running"
KAFKA, SMTP, AIRFLOW = "kafka", "smtp", "airflow"
_PORTS = {"http": 80, "https": 443}
Say = Callable[[str], None]
State = dict[str, str]


class Service(Protocol):
    """What the module of one part implements."""

    def start(self, settings: Settings) -> None:
        """Start it and return when it is healthy; do nothing where it is up."""

    def stop(self, settings: Settings) -> None:
        """Stop it and return when no process of it is left."""

    def state(self, settings: Settings) -> State:
        """Return `state` (up, down, or what is wrong), `address` and more."""


@dataclass(frozen=True)
class Part:
    """One part of the stack; `setting` is that of its port."""

    name: str
    title: str
    port: int
    setting: str
    service: Service


def parts(settings: Settings) -> list[Part]:
    """Return the parts that Shardpost runs itself, in the order of their start."""
    foreign = {
        KAFKA: settings.bootstrap_servers,
        SMTP: settings.smtp_host,
        AIRFLOW: settings.airflow_url,
    }
    return [part for part in _all(settings) if foreign[part.name] is None]


def _all(settings: Settings) -> list[Part]:
    s = settings
    return [
        Part(KAFKA, "Kafka", s.kafka_port, "SHARDPOST_KAFKA_PORT", broker),
        Part(SMTP, "the mail sink", s.smtp_port, "SHARDPOST_SMTP_PORT", sink),
        Part(AIRFLOW, "Airflow", s.airflow_port, "SHARDPOST_AIRFLOW_PORT", airflow),
    ]


def up(settings: Settings, *, with_airflow: bool, say: Say) -> None:
    """Start what is down, create the topics, and return when all is healthy.

    If something cannot be started, what this call has started is stopped again.
    """
    wanted = [part for part in parts(settings) if with_airflow or part.name != AIRFLOW]
    _require_home(settings)
    with _stack_lock(settings, say):
        states = {part.name: part.service.state(settings)["state"] for part in wanted}
        missing = [part for part in wanted if states[part.name] != UP]
        fresh = [part for part in wanted if states[part.name] == DOWN]
        if missing:
            _require_machine(settings, fresh)
        if states.get(AIRFLOW) == DOWN:
            airflow.require_task_options(settings)
        elif AIRFLOW in states and (other := airflow.other_settings(settings)):
            say(f"Airflow runs with another {', '.join(other)}: `{RESTART}` takes this one")
        started: list[Part] = []
        try:
            _start_parts(settings, missing, fresh, started, say)
            if states.get(AIRFLOW, UP) == UP:
                _create_topics(settings, say)
        except BaseException:
            for part in reversed(started):
                say(f"stopping {part.title}, since the start failed")
                part.service.stop(settings)
            raise


def down(settings: Settings, *, say: Say) -> None:
    """Stop all that was started in this home, in reverse order; say so where nothing is running."""
    if not settings.home.exists():
        say(NOTHING_UP)
        return
    with ExitStack() as held:
        try:
            held.enter_context(_stack_lock(settings, say))
        except OSError as error:  # of a home that cannot be written: nobody else can take it
            say(f"{error.filename or settings.home}: {error.strerror}: stopping without its lock")
        states = {part: part.service.state(settings)["state"] for part in reversed(_all(settings))}
        for part, state in states.items():
            if state != DOWN:
                say(f"stopping {part.title}")
            part.service.stop(settings)
        if set(states.values()) == {DOWN}:
            say(NOTHING_UP)
            for file in sorted(settings.home.glob(f"*/kafka/{broker.PID_FILE}")):
                if daemons.Daemon("kafka", (), {}, file, file).alive:
                    home = shlex.quote(str(file.parent.parent))
                    say(f"a stack is up in a folder of it: SHARDPOST_HOME={home} shardpost down")


def status(settings: Settings) -> dict[str, State]:
    """Return the states of kafka, smtp and airflow, also of those that are not embedded."""
    states = {part.name: part.service.state(settings) for part in parts(settings)}
    if KAFKA not in states:
        reached = is_reachable(Installation(settings).kafka, EXTERNAL_SECONDS)
        states[KAFKA] = {"state": UP if reached else DOWN, "address": settings.bootstrap}
    if SMTP not in states:
        host, port = settings.smtp_host or "", settings.smtp_port
        states[SMTP] = _foreign(f"{host}:{port}", host, port)
    if AIRFLOW not in states:
        address = urlsplit(settings.airflow_url or "")
        port = address.port or _PORTS[address.scheme]
        states[AIRFLOW] = _foreign(address.geturl(), address.hostname or "", port)
    states[AIRFLOW].setdefault("address", f"http://{daemons.LOOPBACK}:{settings.airflow_port}")
    return {name: states[name] for name in (KAFKA, SMTP, AIRFLOW)}


def _foreign(address: str, host: str, port: int) -> State:
    reached = daemons.port_accepts(port, host, EXTERNAL_SECONDS)
    return {"state": UP if reached else DOWN, "address": address}


def hint_at_other_home(settings: Settings) -> str:
    """Return, to end a line, which other home started the broker on this port; "" if none."""
    folder = None if settings.bootstrap_servers else daemons.folder_of_listener(settings.kafka_port)
    if folder is None or not (folder / broker.PID_FILE).exists():
        return ""
    home = folder.parent
    if home == settings.home.resolve():
        return ""
    return f"; the stack that is up on port {settings.kafka_port} has SHARDPOST_HOME={home}"


@contextmanager
def _stack_lock(settings: Settings, say: Say) -> Iterator[None]:
    what, files = "another `shardpost up` or `down`", Installation(settings).files
    with ExitStack() as held:
        try:
            held.enter_context(exclusive_here(files, LOCK, what))
        except LockedError as error:
            say(f"{error.holder}: waiting up to {files.lock_wait:g} s for it")
            held.enter_context(exclusive_here(files, LOCK, what, wait=files.lock_wait))
        yield


def _start_parts(
    settings: Settings, parts: list[Part], fresh: list[Part], started: list[Part], say: Say
) -> None:
    """Start parts, in order; append those that were down to `started`."""
    with ThreadPoolExecutor(1) as pool:  # prepares Airflow while other parts start
        is_fresh = AIRFLOW in {part.name for part in fresh}
        prepared = pool.submit(airflow.prepare, settings) if is_fresh else None
        for part in parts:
            if part.name == AIRFLOW:
                _create_topics(settings, say)
                if prepared:
                    prepared.result()
            if part in fresh:
                started.append(part)
            say(f"starting {part.title} on port {part.port} …")
            since = time.monotonic()
            part.service.start(settings)
            say(f"{part.title} is up after {time.monotonic() - since:.1f} s")


def _create_topics(settings: Settings, say: Say) -> None:
    for topic in create_topics(Installation(settings)):
        if topic.created or topic.starter:
            say(topic.as_text())


def _require_home(settings: Settings) -> None:
    try:
        tempfile.TemporaryFile(dir=settings.folder()).close()
    except OSError as error:
        raise ShardpostError(
            f"SHARDPOST_HOME={settings.home} cannot be written ({error.strerror}):"
            " free some space, fix its permissions, or set another home"
        ) from None


def _require_machine(settings: Settings, fresh: list[Part]) -> None:
    """Raise ShardpostError, before anything is started, for what is missing on this machine."""
    free = shutil.disk_usage(settings.home).free
    if free < FREE_BYTES:
        raise ShardpostError(
            f"the disk of SHARDPOST_HOME={settings.home} has {free / 1024**3:.1f} GiB free,"
            " expected at least 1: free some space, or set SHARDPOST_HOME to another disk"
        )
    broker.find_java()
    jars_of("broker")
    jars_of("spark")
    for part in fresh:
        daemons.require_free_port(part.port, part.title, part.setting)
