"""The embedded stack: `shardpost up`, `down`, `status`, `demo`, and Airflow's command line.

And `dags` and `jars`: what another Airflow, and Spark, need of a package that pip installed.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from shardpost.checkout import CHECKOUT, DAGS
from shardpost.commands.console import AS_JSON, print_document
from shardpost.errors import ShardpostError, UsageError
from shardpost.installation import opened
from shardpost.locks.shared_files import Files


@click.command()
@AS_JSON
def status_command() -> None:
    """Print state and address of broker, mail server and Airflow.

    Exit code 0, whatever is up: `shardpost doctor` is the check.
    """
    from shardpost.embedded import stack

    installation = opened()
    found = stack.status(installation.settings) | _follower(installation.files)
    print_document(found, lambda: status_text(installation.files, found))


def _follower(files: Files) -> dict[str, dict[str, str]]:
    """Return the compaction that follows the topics, as one more service; nothing if none does."""
    from shardpost.holders.following import following

    now = datetime.now(UTC)
    with suppress(ShardpostError):  # the store is away, which is not asked here
        if one := following(files, now):
            return {"follow": {"state": "up", "detail": f"{one.holder}: {one.summary(now)}"}}
    return {}


def status_text(files: Files, found: dict[str, dict[str, str]]) -> str:
    """Return a line per service: state, address, login and detail; then the folders."""
    lines = []
    for name, state in found.items():
        login = f"  (user {state['user']}, password {state['password']})" if "user" in state else ""
        detail = f"  {state['detail']}" if "detail" in state else ""
        line = f"{name:<8} {state['state']:<10} {state.get('address', '')}{login}{detail}"
        lines.append(line.rstrip())
    folders = [f"{name:<8} {files.home / name}" for name in ("mail", "logs")]
    return "\n".join([*lines, *folders])


@click.command()
@click.option("--no-airflow", is_flag=True, help="Start the broker and the mail sink only.")
def up_command(no_airflow: bool) -> None:
    """Start the embedded stack.

    Returns when all services are healthy; those that are running already are left alone. Airflow
    has the settings that it was started with: if yours differ, it says which.
    """
    from shardpost.embedded import stack

    installation = opened()
    stack.up(
        installation.settings,
        with_airflow=not no_airflow,
        say=lambda line: click.echo(line, err=True),
    )
    click.echo(status_text(installation.files, stack.status(installation.settings)))


@click.command()
def down_command() -> None:
    """Stop the embedded stack; its data is kept."""
    from shardpost.embedded import stack

    stack.down(opened().settings, say=lambda line: click.echo(line, err=True))


@click.command()
@click.option("--keep", is_flag=True, help="Keep its stack running, to explore it.")
@click.option("--avro", is_flag=True, help="Write positions as Debezium does, in Avro.")
def demo_command(keep: bool, avro: bool) -> None:
    """Run the whole pipeline on five positions, end to end.

    Uses a fresh stack with a home and ports of its own, so it does not disturb a running stack.
    """
    from shardpost.embedded import demo

    demo.run_demo(opened().settings, now=datetime.now(UTC), keep=keep, avro=avro, say=click.echo)


# Airflow's command line says at each start that it cannot draw DAGs; nothing here draws them.
IGNORED_WARNING = "ignore:Could not import graphviz:UserWarning"


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def airflow_command(arguments: tuple[str, ...]) -> None:
    """Run Airflow's own command line on this stack."""
    from shardpost.embedded.airflow import BIN, process_environment

    airflow = str(BIN / "airflow")
    warnings = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), IGNORED_WARNING)))
    environment = process_environment(opened().settings) | {"PYTHONWARNINGS": warnings}
    os.execve(airflow, [airflow, *arguments], environment)  # noqa: S606


IVY = CHECKOUT / "ivy"
# Files of `ivy/` that say nothing of a user's jars.
NO_PURPOSES = ("settings", "tests", "s3proxy", "registry", "connect")
FETCH_SECONDS = 900.0


@click.group()
def dags_command() -> None:
    """Print where the DAGs are, for your own Airflow."""


@dags_command.command("path")
def path_command() -> None:
    """Print the folder of the DAGs: for Airflow's dags_folder, or a bundle of its own.

    Airflow finds the plugins of a package that pip installed. For a checkout, set Airflow's
    plugins_folder to its folder `plugins`.
    """
    opened()
    click.echo(DAGS)


@click.group()
def jars_command() -> None:
    """Fetch the jars that wheels do not include."""


@jars_command.command("fetch")
@click.argument("purposes", nargs=-1, metavar="[PURPOSE]...")
def fetch_command(purposes: tuple[str, ...]) -> None:
    """Fetch jars from Maven Central, in exact versions by SHA-256, into the virtual environment.

    PURPOSE is one or more of the files in `ivy/`, by default `spark`, which every job needs; `jdbc`
    is for imports from databases, `avro` for inputs in Avro, `broker` for `shardpost up`. Jars that
    are there already are not fetched again.
    """
    opened()
    for purpose in purposes or ("spark",):
        click.echo(fetch(purpose))


def fetch(purpose: str) -> Path:
    """Return the folder of the jars of a purpose, with those that ivy/jars.sha256 names."""
    from shardpost.spark.jars import JARS

    names = sorted({file.stem for file in IVY.glob("*.xml")} - {*NO_PURPOSES})
    if purpose not in names:
        raise UsageError(f"jars: expected {', '.join(names)}, found {purpose}")
    lines = (line.split() for line in (IVY / "jars.sha256").read_text().splitlines())
    listed = [(digest, Path(name)) for digest, name in lines]
    expected = {path.name: digest for digest, path in listed if path.parent.name == purpose}
    folder = JARS / purpose
    if _hashes(folder) == expected:
        return folder
    JARS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=JARS) as temporary:
        fetched = Path(temporary) / purpose
        _retrieve(purpose, Path(temporary))
        if (found := _hashes(fetched)) != expected:
            differing = ", ".join(sorted({name for name, _ in found.items() ^ expected.items()}))
            raise ShardpostError(
                f"jars of {purpose}: expected the checksums of ivy/jars.sha256, found others: "
                f"{differing}"
            )
        shutil.rmtree(folder, ignore_errors=True)
        fetched.replace(folder)
    return folder


def _hashes(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.jar")
    }


def _retrieve(purpose: str, folder: Path) -> None:
    """Let the Ivy that PySpark brings fetch the jars into a folder of that name."""
    from shardpost.embedded.broker import find_java
    from shardpost.spark.jars import spark_home

    [ivy] = spark_home().glob("jars/ivy-*.jar")
    command = [
        *(find_java(), f"-Dcache={folder}/cache", "-jar", str(ivy)),
        *("-settings", str(IVY / "settings.xml"), "-ivy", str(IVY / f"{purpose}.xml")),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{folder}/{purpose}/[artifact]-[revision].[ext]"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ShardpostError(f"jars of {purpose}: not fetched within {FETCH_SECONDS:g} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ShardpostError(f"jars of {purpose} cannot be fetched: {lines[-1] if lines else '?'}")
