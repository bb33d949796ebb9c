"""The peer: a Kafka Streams application that does the same job, from outside of this project."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measured import Measured
from shardpost.settings import Settings

# exactly_once_v2 is what we promise too. The second is the best that tuning gave beforehand.
DEFAULTS = ("--guarantee", "exactly_once_v2", "--threads", "2")
TUNED = (*DEFAULTS, "--optimization", "all")


@dataclass(frozen=True)
class Peer:
    """The peer's script, driven on our broker; what it builds and keeps is below the home."""

    script: Path
    settings: Settings

    @classmethod
    def found(cls, folder: Path | None, settings: Settings) -> "Peer | None":
        """Return the peer of that folder, built; None, and a word, if there is none."""
        if folder is None or not (folder / "peer.sh").exists():
            print(
                f"no peer: expected peer.sh in {folder or 'the folder that BENCH_PEER names'};"
                " only Shardpost is measured"
            )
            return None
        peer = cls((folder / "peer.sh").resolve(), settings)
        peer.call("describe")
        return peer

    @property
    def _home(self) -> Path:
        return self.settings.home / "peer"

    def staying(self, *arguments: str) -> list[str]:
        """Return the command that runs its topology until it is ended (StayingPeer.java)."""
        built = self._home / "peer-build"
        source = Path(__file__).with_name("StayingPeer.java")
        classes = f"{built}/classes:{built}/lib/*"
        where = (self.settings.bootstrap, str(self._home / "state"))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return ["java", "-Xmx2g", quiet, "-cp", classes, str(source), *arguments, *where]

    def call(self, *arguments: str) -> str:
        """Run its script; return what it printed."""
        environ = {
            **os.environ,
            "BENCH_HOME": str(self._home),
            "BROKER_PORT": str(self.settings.kafka_port),
        }
        return subprocess.run(
            [str(self.script), *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout


@dataclass(frozen=True)
class Application:
    """One configuration of it, with a state and an output topic of its own."""

    peer: Peer
    name: str
    topic: str
    options: Sequence[str]

    @property
    def output(self) -> str:
        """The topic of its results."""
        return f"share-holders-{self.name}"

    def reset(self) -> None:
        """Remove what it left."""
        self.peer.call("reset", "--app-id", self.name, "--output", self.output)

    @property
    def stay(self) -> list[str]:
        """The command that runs it until it is ended."""
        return self.peer.staying(self.topic, self.output, self.name)

    def catch_up(self) -> Measured:
        """Run it until it has caught up: seconds from the start of its main until then."""
        names = ("--input", self.topic, "--output", self.output, "--app-id", self.name)
        found = json.loads(self.peer.call("run", *names, *self.options))
        return Measured(found["from_main_s"], {"java": found["peak_rss_mb"]}, "")
