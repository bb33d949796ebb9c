"""The Spark job `import_positions`, as the command and the DAG submit it, and its source.

What is given as a source is made absolute and looked at before anything is started.
"""

from pathlib import Path

from shardpost.errors import UsageError
from shardpost.position_import.model.source import (
    JDBC,
    FileSource,
    Format,
    JdbcSource,
    Source,
    format_of,
    jdbc_source,
)
from shardpost.settings import Settings
from shardpost.spark.jars import jars_of
from shardpost.spark.job_spec import JobSpec

# Spark takes these in a path as a pattern, and leaves out files whose names begin so.
_PATTERNS = "*?[]{}\\"
_LEFT_OUT = ("_", ".")


def find_source(
    text: str, format_: str | None = None, table: str | None = None, query: str | None = None
) -> Source:
    """Return the source that is meant; UsageError if it is none, or no file is there."""
    if text.startswith(JDBC):
        return _with_driver(jdbc_source(text, table, query))
    if table or query:
        raise UsageError("--table and --query are for a JDBC URL")
    if not text.strip():
        raise UsageError("expected a file, a folder or a JDBC URL, found nothing")
    if "://" in text and not text.startswith("file://"):
        return FileSource(text, _format(text, [text], format_))
    path = Path(text.removeprefix("file://")).expanduser().absolute()
    _require_readable(path)
    return FileSource(str(path), _format(str(path), _names(path), format_))


def _with_driver(source: JdbcSource) -> JdbcSource:
    """Return the source; UsageError, with what to install, if its driver is not among the jars."""
    driver = source.driver
    if not any(jar.name.startswith(f"{driver.artifact}-") for jar in jars_of("jdbc")):
        raise UsageError(
            f"{source.url}: its driver {driver.organisation}:{driver.artifact} is not installed:"
            " add it to ivy/jdbc.xml, and run `make setup`"
        )
    return source


def _require_readable(path: Path) -> None:
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if wrong := set(_PATTERNS) & set(str(path)):
        raise UsageError(f"{path}: Spark takes {min(wrong)!r} as a pattern: rename it")
    if path.name.startswith(_LEFT_OUT):
        raise UsageError(f"{path}: Spark leaves out names that begin with _ or a dot: rename it")


def _names(path: Path) -> list[str]:
    """Return the names of the files that Spark will read."""
    if not path.is_dir():
        return [path.name]
    found = [one.name for one in sorted(path.iterdir()) if not one.name.startswith(_LEFT_OUT)]
    if not found:
        raise UsageError(f"{path}: expected files in this folder, found none")
    return found


def _format(where: str, names: list[str], given: str | None) -> Format:
    if given:
        return Format(given)
    found = {format_of(name) for name in names}
    if len(found) == 1 and (only := found.pop()):
        return only
    raise UsageError(
        f"{where}: expected names that end in .csv, .json, .jsonl, .ndjson or .parquet, all of one"
        " kind: say --format csv, json or parquet"
    )


def _open_positions(settings: Settings) -> int:
    from shardpost.delta import snapshots

    found = snapshots.newest(settings)
    return found.counts.positions if found else 0


IMPORT_POSITIONS = JobSpec("import_positions", _open_positions, more_jars=("jdbc",))
