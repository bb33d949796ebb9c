"""The Spark job `import_positions`, as the command and the DAG submit it, and its source.

What is given as a source is made absolute and looked at before anything is started.
"""

from pathlib import Path
from urllib.parse import unquote

from shardpost.errors import UsageError
from shardpost.installation import Installation
from shardpost.position_import.list_files import files_of
from shardpost.position_import.model.source import (
    JDBC,
    FileSource,
    Format,
    JdbcSource,
    Source,
    format_of,
    jdbc_source,
)
from shardpost.spark.jars import jars_of
from shardpost.spark.job_spec import JobSpec

FILE = "file://"


def find_source(
    text: str, format_: str | None = None, table: str | None = None, query: str | None = None
) -> Source:
    """Return the source that is meant; UsageError if it is none, or no file is there."""
    if text.lower().startswith(JDBC):
        if format_:
            raise UsageError("--format is for files, found a JDBC URL")
        return _with_driver(jdbc_source(text, table, query))
    if table or query:
        raise UsageError("--table and --query are for a JDBC URL")
    if text.strip() in {"", "-"}:
        raise UsageError(f"expected a file, a folder or a JDBC URL, found {text!r}")
    if "://" in text.removeprefix(FILE):
        raise UsageError(
            f"{text.partition(':')[0]}://…: expected a file or a folder of this machine, or a JDBC"
            " URL: nothing else is tested; copy the list here"
        )
    given = unquote(text.removeprefix(FILE)) if text.startswith(FILE) else text
    path = Path(given).expanduser().absolute()
    return FileSource(str(path), _format(path, files_of(path), format_))


def _with_driver(source: JdbcSource) -> JdbcSource:
    """Return the source; UsageError, with what to install, if its driver is not among the jars."""
    driver = source.driver
    if not any(jar.name.startswith(f"{driver.artifact}-") for jar in jars_of("jdbc")):
        raise UsageError(
            f"{source.url}: its driver {driver.organisation}:{driver.artifact} is not installed:"
            " add it to ivy/jdbc.xml, and run `make setup`"
        )
    return source


def _format(where: Path, files: list[Path], given: str | None) -> Format:
    if given:
        return Format(given)
    found = {format_of(path.name) for path in files}
    if len(found) == 1 and (only := found.pop()):
        return only
    raise UsageError(
        f"{where}: expected names that end in .csv, .json, .jsonl, .ndjson or .parquet, all of one"
        " kind: say --format csv, json or parquet"
    )


def _open_positions(installation: Installation) -> int:
    from shardpost.delta import snapshots

    found = snapshots.newest(installation.tables)
    return found.counts.positions if found else 0


IMPORT_POSITIONS = JobSpec("import_positions", _open_positions, more_jars=("jdbc",))
