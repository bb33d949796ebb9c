"""The Spark job `import_positions`, as the command and the DAG submit it, its source and profile.

What is given as a source is made absolute and looked at before anything is started.
"""

from pathlib import Path
from urllib.parse import unquote

from shardpost.errors import UsageError, one_line
from shardpost.imports.model.list_format import NO_PROFILE, Profile
from shardpost.imports.model.source import (
    COMPRESSED,
    JDBC,
    FileSource,
    Format,
    Source,
    format_of,
    jdbc_source,
)
from shardpost.installation import Installation
from shardpost.settings.forms import read_text
from shardpost.spark.jars import jars_of
from shardpost.spark.job import JobSpec
from shardpost.values.yaml_files import YamlFile
from shardpost.wording import meant

FILE = "file://"
GZIP = ".gz"


def find_source(
    text: str,
    format_: str | None = None,
    table: str | None = None,
    query: str | None = None,
    profile: Profile = NO_PROFILE,
) -> Source:
    """Return the source that a text names; UsageError for another text, or a missing file."""
    if text.lower().startswith(JDBC):
        if format_ or profile != NO_PROFILE:
            raise UsageError("--format and --profile are for files, found a JDBC URL")
        source = jdbc_source(text, table, query)
        driver = source.driver
        if not any(jar.name.startswith(f"{driver.artifact}-") for jar in jars_of("jdbc")):
            raise UsageError(
                f"{source.url}: its driver {driver.organisation}:{driver.artifact} is not"
                " installed: add it to ivy/jdbc.xml, and run `make setup`"
            )
        return source
    if table or query:
        raise UsageError("--table and --query are for a JDBC URL")
    if text.strip() in {"", "-"}:
        raise UsageError(f"expected a file, a folder or a JDBC URL, found {text!r}")
    if "://" in text.removeprefix(FILE):
        raise UsageError(
            f"{text.partition(':')[0]}://…: expected a file or a folder of this machine, or a"
            " JDBC URL: other sources are not supported; copy the list here"
        )
    given = unquote(text.removeprefix(FILE)) if text.startswith(FILE) else text
    path = Path(given).expanduser().absolute()
    found = _format(path, files_of(path), format_)
    if profile != NO_PROFILE and found is not Format.CSV:
        raise UsageError(f"{path}: --profile is for CSV, found {found}")
    return FileSource(str(path), found, profile=profile)


def read_profile(home: Path, name: str | None) -> Profile:
    """Return the profile of that name in the home, or of that path; UsageError by line."""
    if not name:
        return NO_PROFILE
    known = sorted(path.stem for path in (home / "profiles").glob("*.yml"))
    is_path = "/" in name or name.endswith((".yml", ".yaml"))
    path = Path(name).expanduser() if is_path else home / "profiles" / f"{name}.yml"
    if not is_path and not path.exists():
        raise UsageError(f"--profile {one_line(name)}: there is no {path}{meant(name, known)}")
    file = YamlFile.read(path, read_text(path, advice="correct --profile"))
    return file.checked(Profile, lambda _: Profile.model_fields)


def _format(where: Path, files: list[Path], given: str | None) -> Format:
    if given:
        return Format(given)
    found = {format_of(path.name) for path in files}
    if len(found) == 1 and (only := found.pop()):
        return only
    raise UsageError(
        f"{where}: expected names that end in .csv, .json, .jsonl, .ndjson or .parquet, all of"
        " one kind: use --format csv, json or parquet"
    )


def files_of(path: Path) -> list[Path]:
    """Return the files of a list, a file or a folder; UsageError for what would be left out."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    found = [path]
    if path.is_dir():
        try:
            found = [one for one in sorted(path.iterdir()) if not _is_mark(one)]
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if not found:
        raise UsageError(f"{path}: expected files of rows in this folder, found none")
    for one in (path, *found):
        if one.name.startswith(("_", ".")):
            raise UsageError(
                f"{one}: names that begin with _ or a dot mark unfinished files: rename it, or move"
                " it away if it is not part of the list"
            )
    return [_readable(one) for one in found]


def _is_mark(path: Path) -> bool:
    """Tell whether it is what Spark writes beside files: that it is done, and their checksums."""
    if path.name == "_SUCCESS":
        return path.is_file() and not path.stat().st_size
    is_sum = path.name.startswith(".") and path.name.endswith(".crc")
    return is_sum and path.with_name(path.name[1:-4]).is_file()


def _readable(path: Path) -> Path:
    if path.is_dir():
        raise UsageError(
            f"{path}: expected only files in the folder of a list, found a folder: move its"
            " files up, or give that folder"
        )
    if not path.is_file():
        what = "a broken link, a pipe or a device"
        raise UsageError(f"{path}: expected a file, found {what}: write the list to a file")
    suffix = path.suffix
    if suffix.lower() in COMPRESSED and suffix != GZIP:
        helps = f"rename it to {path.stem}{GZIP}" if suffix.lower() == GZIP else "unpack it"
        raise UsageError(f"{path}: expected no compression but {GZIP}, found {suffix}: {helps}")
    return path


def _open_positions(installation: Installation) -> int:
    from shardpost.delta import snapshots

    found = snapshots.newest(installation.tables)
    return found.counts.positions if found else 0


IMPORT_POSITIONS = JobSpec("import_positions", _open_positions, more_jars=lambda _: ("jdbc",))
