"""The files of the embedded broker in `home/kafka`: its configuration and its data folder."""

import base64
import os
import re
import shutil
import subprocess
import uuid
from pathlib import Path

from shardpost.embedded import ports
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.spark.jars import broker_jars

LOGGING = "-Dlog4j2.configurationFile=log4j2.properties"
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}

# Paths are relative to home/kafka, so that no character of the home's path has to be escaped.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
# Topics are created by `shardpost topics apply` only.
auto.create.topics.enable=false
# One node: internal topics have one replica and few partitions; a group waits for no members.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=8
group.initial.rebalance.delay.ms=0
# Offsets of an inactive group are kept for a year: a stack may be down for a long time.
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


def classpath() -> str:
    """Return the class path of the broker."""
    return f"{broker_jars()[0].parent}/*"


def port(settings: Settings) -> int | None:
    """Return the port that the broker was last started on; None if it never was."""
    return _configured(settings, r"^advertised\.listeners=.*:(\d+)$")


def configure(settings: Settings, java: str) -> None:
    """Write the configuration, and format the data folder where there is none."""
    folder = settings.home / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    (settings.home / "logs").mkdir(exist_ok=True)
    kept = _configured(settings, r"^controller\.quorum\.bootstrap\.servers=.*:(\d+)$")
    controller = kept if kept and ports.is_free(kept) else ports.choose()
    (folder / "log4j2.properties").write_text(LOG4J2)
    _write_properties(folder / "server.properties", settings.kafka_port, controller, "data")
    if not (folder / "data").exists():
        _format(folder, settings.kafka_port, controller, java)


def _configured(settings: Settings, pattern: str) -> int | None:
    path = settings.home / "kafka" / "server.properties"
    match = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
    return int(match[1]) if match else None


def _write_properties(path: Path, port: int, controller: int, data: str) -> None:
    path.write_text(PROPERTIES.format(port=port, controller=controller, data=data))


def _format(folder: Path, port: int, controller: int, java: str) -> None:
    """Create `data` atomically: formatted beside it, then renamed."""
    shutil.rmtree(folder / "data.new", ignore_errors=True)
    _write_properties(folder / "format.properties", port, controller, "data.new")
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [
        *(java, LOGGING, "-cp", classpath()),
        *("kafka.tools.StorageTool", "format", "--standalone"),
        *(f"--cluster-id={cluster}", "--config", "format.properties"),
    ]
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        output = " | ".join((done.stdout + done.stderr).split("\n")[-3:])
        raise ShardpostError(f"Kafka's data folder {folder / 'data'} cannot be formatted: {output}")
    (folder / "data.new").rename(folder / "data")
