"""The embedded Kafka: one real broker, its own KRaft controller beside it, all on loopback.

All of it is in `home/kafka`: its configuration, its pid file, and `data`, which survives down and up.
"""

import base64
import os
import re
import shutil
import subprocess
import uuid
from pathlib import Path

from shardpost.adapters.jars import broker_jars
from shardpost.adapters.kafka import answers
from shardpost.embedded import ports
from shardpost.embedded.java import java
from shardpost.embedded.process import Daemon, log_end, wait_until
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

HEAP = "1g"
START_SECONDS = 120.0
STOP_SECONDS = 60.0
STATE_SECONDS = 5.0
JVM = ["-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"]
LOGGING = "-Dlog4j2.configurationFile=log4j2.properties"

# Paths are relative to home/kafka, so no character of the home's name can upset a Java parser.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
# A topic that nobody declared is a mistake, not a wish.
auto.create.topics.enable=false
# One node: internal topics have one replica, few partitions, and nobody to wait for.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=8
group.initial.rebalance.delay.ms=0
# Offsets of a group that stands still are kept for a year: a stack may be down for long.
offsets.retention.minutes=525600
"""

LOG4J2 = """\
appender.file.type=RollingFile
appender.file.name=FILE
appender.file.fileName=../logs/kafka.log
appender.file.filePattern=../logs/kafka.log.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{1}: %m%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=WARN
rootLogger.appenderRef.file.ref=FILE
"""


def start(settings: Settings) -> bool:
    """Start the broker and return when it answers; False if it was up already."""
    daemon = _daemon(settings, "java")
    if daemon.alive:
        _wait(settings, daemon)
        return False
    ports.require_free(settings.kafka_port, "Kafka", "SHARDPOST_KAFKA_PORT")
    daemon = _daemon(settings, java())
    daemon.stop()  # what a killed broker left of itself
    _configure(settings, daemon.command[0])
    daemon.start()
    try:
        _wait(settings, daemon)
    except BaseException:
        daemon.stop()
        raise
    return True


def stop(settings: Settings) -> bool:
    """Stop the broker, in order; False if it was not up."""
    daemon = _daemon(settings, "java")
    was_up = daemon.alive
    daemon.stop(STOP_SECONDS)
    return was_up


def state(settings: Settings) -> dict[str, str]:
    """Return `state` (up, down or unhealthy), `address`, and `detail` where there is more to say."""
    daemon = _daemon(settings, "java")
    found = {"address": settings.bootstrap}
    if daemon.alive:
        if answers(settings, STATE_SECONDS):
            return {"state": "up", **found}
        return {"state": "unhealthy", **found, "detail": _silent(settings, daemon)}
    if daemon.identity is not None:
        found["detail"] = f"it ended without being stopped; {log_end(daemon.log, 1)}"
    if not ports.is_free(settings.kafka_port):
        found["detail"] = (
            f"port {settings.kafka_port} is taken by {ports.owner(settings.kafka_port)}"
        )
    return {"state": "down", **found}


def log_of(settings: Settings) -> Path:
    """Return where the broker logs."""
    return settings.home / "logs" / "kafka.log"


def _daemon(settings: Settings, java_command: str) -> Daemon:
    classpath = f"{broker_jars()[0].parent}/*"
    return Daemon(
        "kafka",
        [
            *(java_command, f"-Xmx{HEAP}", *JVM, LOGGING),
            *("-cp", classpath, "kafka.Kafka", "server.properties"),
        ],
        _environment(),
        log_of(settings),
        settings.home / "kafka" / "kafka.pid",
    )


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}


def _wait(settings: Settings, daemon: Daemon) -> None:
    wait_until(
        lambda: ports.accepts(settings.kafka_port) and answers(settings, STATE_SECONDS),
        f"Kafka at {settings.bootstrap}",
        START_SECONDS,
        [daemon],
    )


def _silent(settings: Settings, daemon: Daemon) -> str:
    port = _configured(settings, r"^advertised\.listeners=.*:(\d+)$")
    if port not in {None, settings.kafka_port}:
        return f"it was started on port {port}: `shardpost down`, then `shardpost up`"
    return f"pid {daemon.pid} lives and does not answer; {log_end(daemon.log, 1)}"


def _configure(settings: Settings, java_command: str) -> None:
    """Write the configuration, and make the data folder where there is none."""
    folder = settings.home / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    log_of(settings).parent.mkdir(parents=True, exist_ok=True)
    kept = _configured(settings, r"^controller\.quorum\.bootstrap\.servers=.*:(\d+)$")
    controller = kept if kept and ports.is_free(kept) else ports.choose()
    (folder / "log4j2.properties").write_text(LOG4J2)
    _write_properties(folder / "server.properties", settings.kafka_port, controller, "data")
    if not (folder / "data").exists():
        _format(folder, settings.kafka_port, controller, java_command)


def _configured(settings: Settings, pattern: str) -> int | None:
    path = settings.home / "kafka" / "server.properties"
    match = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
    return int(match[1]) if match else None


def _write_properties(path: Path, port: int, controller: int, data: str) -> None:
    path.write_text(PROPERTIES.format(port=port, controller=controller, data=data))


def _format(folder: Path, port: int, controller: int, java_command: str) -> None:
    """Make `data` in one step: formatted beside it, then renamed."""
    shutil.rmtree(folder / "data.new", ignore_errors=True)
    _write_properties(folder / "format.properties", port, controller, "data.new")
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [
        *(java_command, LOGGING, "-cp", f"{broker_jars()[0].parent}/*"),
        *("kafka.tools.StorageTool", "format", "--standalone"),
        *(f"--cluster-id={cluster}", "--config", "format.properties"),
    ]
    done = subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = " | ".join((done.stdout + done.stderr).split("\n")[-3:])
        raise ShardpostError(f"Kafka's data folder {folder / 'data'} cannot be made: {said}")
    (folder / "data.new").rename(folder / "data")
