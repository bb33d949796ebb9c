"""The lists that only Airflow's connections reach: on an object store, or in a database.

`s3://aws_default@bucket/list.csv` is copied to this machine, where Spark's driver reads it as any
other: the plan is that of its rows. The login of a database goes to the job in its environment, as
the settings of an import do, and never in an argument.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from shardpost.errors import ShardpostError, UsageError, one_line
from shardpost.imports.import_job import FILE, find_source, read_profile
from shardpost.imports.model.source import JDBC, FileSource, Source
from shardpost.orchestration.connections import of_dag
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import task_errors
from shardpost.spark.job import document_of

log = logging.getLogger(__name__)

CONNECTION = "airflow:"
# Airflow's types of connections, and the names that JDBC has for them.
_JDBC_NAMES = {"postgres": "postgresql", "mysql": "mysql"}
# {type: {what its extra has: the parameter of the URL that means the same to the JDBC driver}}
_PARAMETERS = {
    "postgres": {
        **{name: name for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "options")},
        "connect_timeout": "connectTimeout",
        "application_name": "ApplicationName",
    },
    "mysql": {"ssl_mode": "sslMode"},
}
# What sshfs calls the time of the last access, and others may.
_READ_AT = {"time", "atime", "accessed"}
# These say how Airflow's own hooks connect, not where to.
_OF_HOOKS = {"cursor", "driver_class", "driver_path", "placeholder", "sqlalchemy_scheme"}


class ImportJob(SparkJob):
    """Runs an import; `asked` is a function of the run and of the source of its list."""

    def __init__(self, *, asked: Callable[[Context, Source], object], **rest: Any) -> None:
        super().__init__(**rest)
        self.asked = asked
        self._login: dict[str, str] = {}

    def execute(self, context: Context) -> Any:
        """Import, with what a connection reaches at hand."""
        params, text = context["params"], context["params"]["source"] or ""
        with ExitStack() as at_end:
            with task_errors():
                where = text
                if text.startswith(CONNECTION):
                    where, self._login = database_of(text.removeprefix(CONNECTION))
                elif "://" in text and not text.lower().startswith((JDBC, FILE)):
                    where = at_end.enter_context(copy_of(text))
                profile = read_profile(of_dag().load().home, params["profile"])
                source = find_source(where, None, params["table"], params["query"], profile)
                if isinstance(source, FileSource) and where != text:
                    source = replace(source, name=text)
                self.request = document_of(self.asked(context, source), with_now=False)
            return super().execute(context)

    def _configure(self, *given: Any) -> None:
        super()._configure(*given)
        self._environment |= self._login


def database_of(conn_id: str) -> tuple[str, dict[str, str]]:
    """Return the JDBC URL of a connection, and its login as variables; UsageError without one."""
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        expected = "expected an existing connection, found none of that id: add it, or correct it"
        raise UsageError(f"{CONNECTION}{one_line(conn_id)}: {expected}") from None
    conn_type = connection.conn_type or ""
    url, kind = connection.host or "", _JDBC_NAMES.get(conn_type)
    if not url.startswith(JDBC):
        if kind is None:
            raise UsageError(
                f"connection {conn_id}: expected one of type postgres or mysql, or jdbc with a JDBC"
                f" URL as its host, found {connection.conn_type}"
            )
        port = f":{connection.port}" if connection.port else ""
        url = f"jdbc:{kind}://{url}{port}/{connection.schema or ''}"
        url += _parameters(conn_id, connection, _PARAMETERS[conn_type])
    else:
        _parameters(conn_id, connection, {})
    login = {"USER": connection.login or "", "PASSWORD": connection.password or ""}
    mask_secret(login["PASSWORD"])
    return url, {f"SHARDPOST_IMPORT_JDBC_{name}": text for name, text in login.items()}


def _parameters(conn_id: str, connection: Any, known: dict[str, str]) -> str:
    """Return what the extra of a connection adds to its URL; UsageError for what nobody knows.

    Without a parameter, such as the one for TLS, another database could be read, or another schema.
    """
    try:
        extra = json.loads(connection.extra or "{}")
        given = {name: value for name, value in extra.items() if name not in _OF_HOOKS}
    except (ValueError, AttributeError):
        raise UsageError(f"connection {conn_id}: expected a JSON object as its extra") from None
    for name, value in given.items():
        if name not in known or not isinstance(value, str | int) or isinstance(value, bool):
            expected = f"expected only {', '.join(known)}, as text" if known else "expected none"
            raise UsageError(
                f"connection {conn_id}: extra {one_line(name)}: {expected}: make a connection of"
                " type jdbc, whose host is the JDBC URL with what its driver takes"
            )
    if given.get("sslmode") == "require" and "sslrootcert" in given:
        given["sslmode"] = "verify-ca"  # so PostgreSQL's own clients take it, but not the driver
    text = urlencode({known[name]: value for name, value in given.items()}, quote_via=quote)
    return f"?{text}" if text else ""


@contextmanager
def copy_of(url: str) -> Iterator[str]:
    """Give the path of a copy of a list, which is there for as long as it is used.

    ShardpostError if it cannot be read, or if it changes meanwhile.
    """
    from airflow.sdk import ObjectStoragePath

    if ":" in urlsplit(url).netloc.rpartition("@")[0]:
        raise UsageError("expected the id of a connection before @, found a login, which logs show")
    with TemporaryDirectory(prefix="shardpost-") as folder:
        try:
            there = ObjectStoragePath(url)
            copy = Path(folder) / there.name
            before = _stamps(there)
            for path in before:
                local = copy / path.removeprefix(there.path).strip("/")
                local.parent.mkdir(parents=True, exist_ok=True)
                there.fs.get_file(path, str(local))
            is_whole = _stamps(there) == before
        except UsageError as error:
            raise UsageError(f"{url}: {one_line(str(error))}") from None
        except (AirflowNotFoundException, ImportError, ValueError) as error:
            # No such connection; no package for that kind of store, which Airflow says so.
            needs = (
                "expected SCHEME://CONNECTION@BUCKET/KEY, and the provider of that scheme, such as"
            )
            package = "apache-airflow-providers-amazon[s3fs]"
            raise UsageError(f"{url}: {one_line(str(error))}: {needs} {package}") from None
        except Exception as error:  # each file system has its own
            raise ShardpostError(f"{url}: cannot be read: {one_line(str(error))}") from None
        files = [copy] if copy.is_file() else [one for one in copy.rglob("*") if one.is_file()]
        sizes = sorted(one.stat().st_size for one in files)
        if not is_whole or sizes != sorted(one["size"] for one in before.values()):
            raise ShardpostError(f"{url}: changed while it was copied: run it again")
        log.info("%s: copied %d files, %d bytes", url, len(sizes), sum(sizes))
        yield str(copy)


def _stamps(there: Any) -> dict[str, dict[str, Any]]:
    """Return {path: size, time and the like} of the files of a list; not when they were read."""
    there.fs.invalidate_cache()
    infos = {path: there.fs.info(path) for path in there.fs.find(there.path)}
    found = {
        path: {name: value for name, value in info.items() if name not in _READ_AT}
        for path, info in infos.items()
    }
    if not found:
        raise FileNotFoundError("no such file or folder")
    if away := [path for path in found if ".." in path.split("/")]:  # its copy would be elsewhere
        raise UsageError(f"expected names without .. as a folder, found {away[0]}: rename it")
    return found
