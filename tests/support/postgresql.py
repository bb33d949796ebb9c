"""A real PostgreSQL of Debian's package, in a folder of its own, on a free port of this machine.

It refuses to run as root: then it runs as the user that the package has made.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shardpost.embedded import daemons
from shardpost.embedded.daemons import Daemon, wait_until
from tests.support.network import Host

MISSING = "PostgreSQL is not installed: apt-get install postgresql"
OWNER = "postgres"  # whom the package makes
USER, PASSWORD = "shardpost", "nobody's business"
SECONDS = 60


@dataclass(frozen=True)
class Postgresql:
    """A server on a host, with one user who has a password."""

    daemon: Daemon
    host: Host
    port: int
    programs: Path

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://{self.host.address}:{self.port}/postgres"

    def run(self, sql: str) -> None:
        """Run SQL statements."""
        subprocess.run(
            [self.programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", self._address],
            input=sql,
            text=True,
            check=True,
            timeout=SECONDS,
            env=os.environ | {"PGPASSWORD": PASSWORD},
        )

    def is_ready(self) -> bool:
        """Tell whether it takes connections."""
        ask = [f"{self.programs}/pg_isready", "-q", "-d", self._address]
        return subprocess.run(ask, check=False).returncode == 0

    @property
    def _address(self) -> str:
        return f"postgresql://{USER}@{self.host.address}:{self.port}/postgres"


@contextmanager
def postgresql(host: Host = Host()) -> Iterator[Postgresql]:  # noqa: B008 - a value
    """Run a server; its folder goes with it."""
    port, programs = daemons.choose_port(), _programs()
    folder = Path(tempfile.mkdtemp(prefix="shardpost-postgresql-"))
    password, data = folder / "password", folder / "data"
    password.write_text(PASSWORD)
    if os.getuid() == 0:
        shutil.chown(folder, OWNER)
        shutil.chown(password, OWNER)
    create = [f"{programs}/initdb", f"--pgdata={data}", f"--username={USER}", "--no-sync"]
    create += ["--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
    options = {"listen_addresses": host.address, "unix_socket_directories": folder, "fsync": "off"}
    serve = [f"{programs}/postgres", "-D", str(data), "-p", str(port)]
    serve += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    log = folder / "log"
    daemon = Daemon("postgres", host.inside(_as_owner(serve)), {}, log, folder / "pid")
    found = Postgresql(daemon, host, port, programs)
    try:
        subprocess.run(
            _as_owner(create),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=2 * SECONDS,
        )
        with (data / "pg_hba.conf").open("a") as access:
            access.write(f"host all all {host.address}/24 scram-sha-256\n")
        daemon.start()
        wait_until(found.is_ready, "PostgreSQL", SECONDS, [daemon])
        yield found
    finally:
        daemon.stop(5)  # what it holds is of no use any more
        shutil.rmtree(folder)


def _programs() -> Path:
    """Return the folder of the newest version's programs; AssertionError if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    assert found, MISSING
    return found[-1].parent


def _as_owner(command: list[str]) -> list[str]:
    """Return what runs a command as a user that PostgreSQL does not refuse to run as."""
    if os.getuid():
        return command
    return ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups", *command]
