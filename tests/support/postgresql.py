"""A real PostgreSQL of Debian's package, in a folder of its own, on a free port of this machine.

It refuses to run as root: then it runs as the user that the package has made.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shardpost.embedded import daemons

MISSING = "PostgreSQL is not installed: apt-get install postgresql"
USER, PASSWORD = "shardpost", "nobody's business"
SECONDS = 60


@dataclass(frozen=True)
class Postgresql:
    """A server that listens on loopback, with one user who has a password."""

    port: int
    programs: Path

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

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

    @property
    def _address(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"


@contextmanager
def postgresql() -> Iterator[Postgresql]:
    """Run a server; its folder goes with it."""
    found = Postgresql(daemons.choose_port(), _programs())
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="shardpost-postgresql-"))
    password = folder / "password"
    password.write_text(PASSWORD)
    if os.getuid() == 0:
        shutil.chown(folder, user)
        shutil.chown(password, user)
    data, log = folder / "data", folder / "log"
    control = [f"{found.programs}/pg_ctl", f"--pgdata={data}", "-s", "-w", f"--timeout={SECONDS}"]
    options = (
        f"-p {found.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        " -c fsync=off"
    )
    create = [f"{found.programs}/initdb", f"--pgdata={data}", f"--username={USER}", "--no-sync"]
    create += ["--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
    try:
        _as_user(user, create, folder)
        _as_user(user, [*control, f"--log={log}", f"--options={options}", "start"], folder)
        try:
            yield found
        finally:
            _as_user(user, [*control, "--mode=immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder)


def _programs() -> Path:
    """Return the folder of the newest version's programs; AssertionError if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    assert found, MISSING
    return found[-1].parent


def _as_user(user: str, command: list[str], folder: Path) -> None:
    subprocess.run(
        command,
        user=user if os.getuid() == 0 else None,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=2 * SECONDS,
    )
