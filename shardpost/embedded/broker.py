"""The embedded Kafka: one real broker with its own KRaft controller, on loopback.

All its files are in `home/kafka`: its configuration, its pid file, and `data`, which survives
`down` and `up`.
"""

from pathlib import Path

from shardpost.embedded import broker_home, ports
from shardpost.embedded.java import java
from shardpost.embedded.process import Daemon, log_end, log_hint, wait_until
from shardpost.errors import ShardpostError
from shardpost.kafka.topic_metadata import is_reachable
from shardpost.settings import Settings

HEAP = "1g"
START_SECONDS = 120.0
STOP_SECONDS = 60.0
STATE_SECONDS = 5.0
JVM = [
    # The quick compiler alone: on two cores that are shared with all else, the optimising one costs
    # more than it gains (docs/performance.md).
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
]


def start(settings: Settings) -> bool:
    """Start the broker and return when it answers; False if it was up already."""
    daemon = _daemon(settings, "java")
    if daemon.alive:
        if reason := _other_port(settings):
            raise ShardpostError(f"Kafka at {settings.bootstrap} does not answer: {reason}")
        _wait(settings, daemon)
        return False
    ports.require_free(settings.kafka_port, "Kafka", "SHARDPOST_KAFKA_PORT")
    daemon = _daemon(settings, java())
    daemon.stop()  # ends what a killed broker left behind
    broker_home.configure(settings, daemon.command[0])
    daemon.start()
    try:
        _wait(settings, daemon)
    except BaseException:
        daemon.stop()
        raise
    return True


def stop(settings: Settings) -> bool:
    """Stop the broker cleanly; False if it was not up."""
    daemon = _daemon(settings, "java")
    was_up = daemon.alive
    daemon.stop(STOP_SECONDS)
    return was_up


def state(settings: Settings) -> dict[str, str]:
    """Return `state` (up, down or unhealthy), `address`, and `detail` if there is more to say."""
    daemon = _daemon(settings, "java")
    found = {"address": settings.bootstrap}
    if daemon.alive:
        if is_reachable(settings, STATE_SECONDS):
            return {"state": "up", **found}
        return {"state": "unhealthy", **found, "detail": _why_unhealthy(settings, daemon)}
    if daemon.identity is not None:
        found["detail"] = f"it ended without being stopped; {log_hint(daemon.log)}"
    if not ports.is_free(settings.kafka_port):
        found["detail"] = (
            f"port {settings.kafka_port} is in use by {ports.owner(settings.kafka_port)}"
        )
    return {"state": "down", **found}


def log_of(settings: Settings) -> Path:
    """Return the path of the broker's log."""
    return settings.home / "logs" / "kafka.log"


def _daemon(settings: Settings, java_command: str) -> Daemon:
    return Daemon(
        "kafka",
        [
            *(java_command, f"-Xmx{HEAP}", *JVM, broker_home.LOGGING),
            *("-cp", broker_home.classpath(), "kafka.Kafka", "server.properties"),
        ],
        broker_home.ENVIRONMENT,
        log_of(settings),
        settings.home / "kafka" / "kafka.pid",
    )


def _wait(settings: Settings, daemon: Daemon) -> None:
    try:
        wait_until(
            lambda: ports.accepts(settings.kafka_port) and is_reachable(settings, STATE_SECONDS),
            f"Kafka at {settings.bootstrap}",
            START_SECONDS,
            [daemon],
        )
    except ShardpostError as error:
        if "UnsupportedVersionException" not in str(error):
            raise
        raise ShardpostError(
            f"Kafka at {settings.bootstrap} cannot read {settings.home / 'kafka' / 'data'}, which a"
            " newer Kafka has written: set SHARDPOST_HOME to another folder, which starts empty;"
            f" {log_end(daemon.log, 1)}"
        ) from None


def _why_unhealthy(settings: Settings, daemon: Daemon) -> str:
    silent = f"pid {daemon.pid} runs but does not answer; {log_hint(daemon.log)}"
    return _other_port(settings) or silent


def _other_port(settings: Settings) -> str | None:
    """Return what to do if the broker runs on another port than the settings name."""
    port = broker_home.port(settings)
    if port in {None, settings.kafka_port}:
        return None
    return f"it was started on port {port}: `shardpost down`, then `shardpost up`"
