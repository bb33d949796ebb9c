"""`shardpost dags` and `jars`: what Airflow and Spark need of a package that pip installed."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import click

from shardpost.checkout import CHECKOUT, DAGS
from shardpost.errors import ShardpostError, UsageError
from shardpost.installation import opened

IVY = CHECKOUT / "ivy"
# Files of `ivy/` that say nothing of a user's jars.
NO_PURPOSES = ("settings", "tests", "s3proxy")
FETCH_SECONDS = 900.0


@click.group()
def dags_command() -> None:
    """Say where the DAGs are, for an Airflow that runs them."""


@dags_command.command("path")
def path_command() -> int:
    """Print the folder of the DAGs: for Airflow's dags_folder, or a bundle of its own.

    Its plugins Airflow finds by itself where the package is installed by pip; those of a checkout
    are in the folder `plugins` beside, which is for Airflow's plugins_folder.
    """
    opened()
    click.echo(DAGS)
    return 0


@click.group()
def jars_command() -> None:
    """Fetch the jars that no wheel brings."""


@jars_command.command("fetch")
@click.argument("purposes", nargs=-1, metavar="[PURPOSE]...")
def fetch_command(purposes: tuple[str, ...]) -> int:
    """Fetch jars from Maven Central, in exact versions by SHA-256, into the virtual environment.

    PURPOSE is one or more of the files of `ivy/`, by default `spark`, which every job needs; `jdbc`
    is for imports from databases, `broker` for `shardpost up`. Where they are, nothing is fetched.
    """
    opened()
    for purpose in purposes or ("spark",):
        click.echo(fetch(purpose))
    return 0


def fetch(purpose: str) -> Path:
    """Return the folder of the jars of a purpose, with those that ivy/jars.sha256 names."""
    from shardpost.spark.jars import JARS

    expected = _listed(purpose)
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
                f"jars of {purpose}: expected those of ivy/jars.sha256, found others: {differing}"
            )
        shutil.rmtree(folder, ignore_errors=True)
        fetched.replace(folder)
    return folder


def _listed(purpose: str) -> dict[str, str]:
    """Return {name: SHA-256} of the jars of a purpose; UsageError if there is none such."""
    names = sorted({file.stem for file in IVY.glob("*.xml")} - {*NO_PURPOSES})
    if purpose not in names:
        raise UsageError(f"jars: expected {', '.join(names)}, found {purpose}")
    lines = (line.split() for line in (IVY / "jars.sha256").read_text().splitlines())
    of_all = {name: digest for digest, name in lines}
    return {Path(name).name: of_all[name] for name in of_all if Path(name).parent.name == purpose}


def _hashes(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.jar")
    }


def _retrieve(purpose: str, folder: Path) -> None:
    """Let the Ivy that PySpark brings fetch the jars into a folder of that name."""
    import pyspark

    from shardpost.embedded.broker import find_java

    [ivy] = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
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
