"""The embedded Kafka: one real broker with its own KRaft controller, on loopback, and its Java.

All its files are in `home/kafka`: its configuration, its pid file, and `data`, which survives
`down` and `up`. Spark runs on the same Java.
"""

import base64
import os
import re
import shutil
import subprocess
import uuid
from importlib.resources import files
from pathlib import Path

from shardpost.embedded import daemons
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.topic_metadata import is_reachable
from shardpost.settings import Settings
from shardpost.spark.jars import jars_of

# Of Spark 4.0, see its "Downloading" page; Kafka 4 runs on them as well. Java 25 does not: its slim
# builds lack the module jdk.incubator.vector, which Spark's launcher adds.
OLDEST_JAVA, NEWEST_JAVA = 17, 21
_INSTALL_JAVA = (
    "install Java 17 or 21 (on Debian and Ubuntu: `apt-get install openjdk-17-jre-headless`),"
    " or set JAVA_HOME to one"
)


def find_java() -> str:
    """Return the `java` to run, found as Spark finds it: in JAVA_HOME, else in PATH.

    Raises ShardpostError if there is none, or Spark does not run on its version.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise ShardpostError(f"there is no java in {where}: {_INSTALL_JAVA}")
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_major(done.stderr)
    if version is None or not OLDEST_JAVA <= version <= NEWEST_JAVA:
        is_of = f"is Java {version}" if version else "does not run"
        raise ShardpostError(
            f"{java} {is_of}, expected Java {OLDEST_JAVA} to {NEWEST_JAVA}: {_INSTALL_JAVA}"
        )
    return str(Path(java).absolute())


def java_major(output: str) -> int | None:
    """Return the major version in the output of `java -version`; 1.8.0 is 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


LOGGING = "-Dlog4j2.configurationFile=log4j2.properties"
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}

PID_FILE = "kafka.pid"
# With {names} for what differs. Paths are relative to home/kafka, so that no character of the
# home's path has to be escaped.
PROPERTIES = files(__package__).joinpath("server.properties").read_text()
LOG4J2 = files(__package__).joinpath("log4j2.properties").read_text()


def classpath() -> str:
    """Return the class path of the broker."""
    return f"{jars_of('broker')[0].parent}/*"


def configure(settings: Settings, java: str) -> None:
    """Write the configuration, and format the data folder where there is none."""
    folder = settings.folder("kafka")
    settings.folder("logs")
    kept = _read_property(settings, r"^controller\.quorum\.bootstrap\.servers=.*:(\d+)$")
    controller = kept if kept and daemons.port_is_free(kept) else daemons.choose_port()
    (folder / "log4j2.properties").write_text(LOG4J2)
    _write_properties(folder / "server.properties", settings.kafka_port, controller, "data")
    if (folder / "data").exists():
        return
    # Formatted beside it, then renamed.
    shutil.rmtree(folder / "data.new", ignore_errors=True)
    _write_properties(folder / "format.properties", settings.kafka_port, controller, "data.new")
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


def _read_property(settings: Settings, pattern: str) -> int | None:
    path = settings.home / "kafka" / "server.properties"
    match = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
    return int(match[1]) if match else None


def _write_properties(path: Path, port: int, controller: int, data: str) -> None:
    path.write_text(PROPERTIES.format(port=port, controller=controller, data=data))


HEAP = "1g"
START_SECONDS = 120.0
STOP_SECONDS = 60.0
STATE_SECONDS = 5.0
JVM = [
    # The quick compiler alone: on two cores that are shared with all else, the optimising one costs
    # more than it gains.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
]


def start(settings: Settings) -> None:
    """Start the broker unless it is up; return when it answers."""
    daemon = _daemon(settings, "java")
    if daemon.alive:
        port = _read_property(settings, r"^advertised\.listeners=.*:(\d+)$")
        if port not in {None, settings.kafka_port}:
            raise ShardpostError(
                f"Kafka at {settings.bootstrap} does not answer: it was started on port {port}:"
                " `shardpost down`, then `shardpost up`"
            )
        _wait(settings, daemon)
        return
    daemons.require_free_port(settings.kafka_port, "Kafka", "SHARDPOST_KAFKA_PORT")
    daemon = _daemon(settings, find_java())
    daemon.stop()  # ends what a killed broker left behind
    configure(settings, daemon.command[0])
    daemon.start()
    _wait(settings, daemon)


def stop(settings: Settings) -> None:
    """Stop the broker cleanly."""
    _daemon(settings, "java").stop(STOP_SECONDS)


def state(settings: Settings) -> dict[str, str]:
    """Return `state` (up, down or unhealthy), `address`, and `detail` if there is more to say."""
    return daemons.state_of(
        _daemon(settings, "java"),
        settings.kafka_port,
        lambda: is_reachable(Installation(settings).kafka, STATE_SECONDS),
        settings.bootstrap,
    )


def _daemon(settings: Settings, java_command: str) -> daemons.Daemon:
    return daemons.Daemon(
        "kafka",
        [
            *(java_command, f"-Xmx{HEAP}", *JVM, LOGGING),
            *("-cp", classpath(), "kafka.Kafka", "server.properties"),
        ],
        ENVIRONMENT,
        settings.home / "logs" / "kafka.log",
        settings.home / "kafka" / PID_FILE,
    )


def _wait(settings: Settings, daemon: daemons.Daemon) -> None:
    daemons.wait_until(
        lambda: (
            daemons.port_accepts(settings.kafka_port)
            and is_reachable(Installation(settings).kafka, STATE_SECONDS)
        ),
        f"Kafka at {settings.bootstrap}",
        START_SECONDS,
        [daemon],
    )
