"""What an import is asked to do, where its list comes from (files, or a database), and its id.

The id tells whether a list was applied already. Without one of its own, an import has the id of its
content: the same rows in any order, from whatever source, are the same import. Applied again after
other changes, it is another import, with the number of its application behind the id.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from shardpost.errors import ShardpostError, UsageError, one_line
from shardpost.imports.model.list_format import NO_PROFILE, TARGETS, InputName, Profile, Target

JDBC = "jdbc:"
COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})
# Names of properties by which the drivers that are known below take a secret, wherever they stand:
# behind ? & or ; and, with MySQL's and MariaDB's, also within the host: (host=h,password=p), and
# address=(host=h)(password=p).
_PASSWORD = re.compile(r"(passw|pwd)[\w.-]*\s*=", re.IGNORECASE)
_SECRET = re.compile(r"(passphrase|secret|token|providerclientkey)[\w.-]*\s*=", re.IGNORECASE)
# Of Oracle's, a login stands before the @; of all others, an @ is behind one.
_ORACLE = re.compile(r"jdbc:oracle:\w+:@", re.IGNORECASE)
_SUBPROTOCOL = re.compile(r"jdbc:([a-z0-9]+):\S")


class Format(StrEnum):
    """What the files of a list are."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


_SUFFIXES = {f".{one}": one for one in Format} | dict.fromkeys((".jsonl", ".ndjson"), Format.JSON)


@dataclass(frozen=True)
class FileSource:
    """A file, or a folder of files of this machine; `location` is an absolute path.

    `name` is what it is a copy of, and `profile` how the files are written.
    """

    location: str
    format: Format
    name: str | None = None
    profile: Profile = NO_PROFILE

    def __str__(self) -> str:
        return self.name or self.location


class Driver(NamedTuple):
    """The JDBC driver of a kind of database: its class, and where Maven has it."""

    class_name: str
    organisation: str
    artifact: str


DRIVERS = {
    "postgresql": Driver("org.postgresql.Driver", "org.postgresql", "postgresql"),
    "mysql": Driver("com.mysql.cj.jdbc.Driver", "com.mysql", "mysql-connector-j"),
    "mariadb": Driver("org.mariadb.jdbc.Driver", "org.mariadb.jdbc", "mariadb-java-client"),
    "sqlserver": Driver(
        "com.microsoft.sqlserver.jdbc.SQLServerDriver", "com.microsoft.sqlserver", "mssql-jdbc"
    ),
    "oracle": Driver("oracle.jdbc.OracleDriver", "com.oracle.database.jdbc", "ojdbc11"),
}


@dataclass(frozen=True)
class JdbcSource:
    """A table of a database, or what a query returns; either is given."""

    url: str
    table: str | None = None
    query: str | None = None

    def __str__(self) -> str:
        return f"{self.url} {self.table or self.query}"

    @property
    def driver(self) -> Driver:
        """The driver of the URL; UsageError for a database of which none is known."""
        found = _SUBPROTOCOL.match(self.url)
        if not found or found[1] not in DRIVERS:
            known = ", ".join(f"jdbc:{name}:…" for name in DRIVERS)
            raise UsageError(f"{self.url}: expected {known}")
        return DRIVERS[found[1]]


Source = FileSource | JdbcSource


def format_of(name: str) -> Format | None:
    """Return the format that the name of a file says, compressed or not; None if it says none."""
    path = PurePosixPath(name)
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return _SUFFIXES.get(path.suffix.lower())


def jdbc_source(url: str, table: str | None, query: str | None) -> JdbcSource:
    """Return the source of a JDBC URL; UsageError for a password, which is not shown."""
    given = {"a JDBC URL": _has_login(url)}
    given |= {"--table": _has_password(table), "--query": _has_password(query)}
    if found := [name for name, has_login in given.items() if has_login]:
        raise UsageError(
            f"{found[0]} with a login would be visible in process lists and logs: leave the login"
            " out, set SHARDPOST_IMPORT_JDBC_USER and SHARDPOST_IMPORT_JDBC_PASSWORD, and change"
            " the password if it was real"
        )
    if bool(table) == bool(query):
        raise UsageError(f"{url}: expected either --table or --query with it")
    return JdbcSource(url, table or None, query or None)


def _has_login(url: str) -> bool:
    """Tell whether a JDBC URL has a secret, or a place for one; drivers decode % in some parts."""
    decoded = unquote(unquote(url))
    if _SECRET.search(decoded) or _has_password(decoded):
        return True
    is_oracle = decoded.lower().startswith("jdbc:oracle:")
    behind = _ORACLE.sub("", decoded)
    return "@" in behind or (is_oracle and behind == decoded)


def _has_password(text: str | None) -> bool:
    return text is not None and _PASSWORD.search(text) is not None


HEADER = "import-id"
CONTENT_HEADER = "import-content"
# Of an increment: what it continues, and where the next one begins.
STREAM_HEADER, WATERMARK_HEADER = "import-stream", "import-watermark"
MOST_CHARACTERS = 200


@dataclass(frozen=True)
class AppliedImport:
    """That an import was applied, as the topic `decisions` has it."""

    import_id: str
    content: str
    who: str
    when: datetime


Lookup = Callable[[str], AppliedImport | None]


def is_id_of(import_id: str, given: str | None, content: str) -> bool:
    """Tell whether records with that id are of the import with this given id, or content."""
    if given is not None:
        return import_id == given
    return re.fullmatch(rf"{content}(-[0-9]+)?", import_id) is not None


def choose_id(
    given: str | None, content: str, unread: str | None, *, differs: bool, lookup: Lookup
) -> tuple[str, AppliedImport | None]:
    """Return the id of this import, and that it was applied, if it was.

    `unread` is the id of its own records that no compaction has read yet; `differs` says whether
    anything is to be written. ShardpostError if the given id is that of another list.
    """
    if given is not None or unread is not None:
        chosen = given if given is not None else str(unread)
        applied = lookup(chosen)
        if applied and applied.content != content:
            raise ShardpostError(
                f"import {chosen} was applied by {one_line(applied.who)} at"
                f" {applied.when.isoformat()} with other rows: nothing was changed; give this list"
                " another --id"
            )
        return chosen, applied
    before, chosen, number = None, content, 1
    while (found := lookup(chosen)) is not None:
        before, number = found, number + 1
        chosen = f"{content}-{number}"
    if before is not None and not differs:
        return before.import_id, before
    return chosen, None


@dataclass(frozen=True)
class ImportRequest:
    """A list, and whether its difference is written; by default it is only planned.

    It goes `into` an input; with the name of its column `watermark` it is an increment, else it has
    all that is open. Without `import_id` it has that of its content; `max_closed` is a share, by
    default that of the settings; `why` is what is recorded, by default the source and the counts.
    `up_to` is what a plan has shown: `<snapshot>:<content>`. UsageError for an id, or a plan, that
    is none.
    """

    source: Source
    who: str
    is_applied: bool = False
    import_id: str | None = None
    max_closed: float | None = None
    why: str | None = None
    up_to: str | None = None
    into: InputName = "positions"
    watermark: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        given = self.import_id
        if given is not None and (
            not given.strip() or given != one_line(given) or len(given) > MOST_CHARACTERS
        ):
            raise UsageError(
                f"--id: expected up to {MOST_CHARACTERS} printable characters, found {given!r}"
            )
        if self.up_to is not None and not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{16}", self.up_to):
            why = f"expected the value that a plan printed, found {self.up_to[:50]!r}"
            raise UsageError(f"--up-to: {why}: plan the import, without --apply")

    @property
    def target(self) -> Target:
        """What the list is imported into, and as what."""
        profile = self.source.profile if isinstance(self.source, FileSource) else NO_PROFILE
        return replace(TARGETS[self.into], profile=profile, watermark=self.watermark)

    @property
    def stream(self) -> str:
        """What increments continue: the same column of the same source into the same input."""
        return f"{self.into} {self.watermark} {self.source}"
