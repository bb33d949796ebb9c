"""Where the tables are: a folder of this machine or an object store; what opens them asks here.

`SHARDPOST_TABLES` is one path or URL for deltalake, pyarrow and Spark. On a store, each is given
the same address, keys and bounds of time (`object_store.py`); nobody is told them by an argument.
"""

from functools import lru_cache

from deltalake import DeltaTable
from pyarrow import fs

from shardpost import object_store
from shardpost.delta.table import Table
from shardpost.object_store import Address
from shardpost.settings import Settings


def path_of(settings: Settings, table: Table) -> str:
    """Return the path or URL of a table."""
    return f"{settings.tables_root}/{table.path}"


def opened(settings: Settings, table: Table, version: int | None = None) -> DeltaTable:
    """Open a table by deltalake, at a version or the newest; errors are deltalake's."""
    path = path_of(settings, table)
    return DeltaTable(path, version=version, storage_options=options(settings))


def exists(settings: Settings, table: Table) -> bool:
    """Tell whether a table exists."""
    return DeltaTable.is_deltatable(path_of(settings, table), options(settings))


def options(settings: Settings) -> dict[str, str] | None:
    """Return deltalake's `storage_options`; None for tables of this machine."""
    if (where := object_store.require_answering(settings)) is None:
        return None
    return {
        **settings.store,
        "AWS_ALLOW_HTTP": str(where.is_plain).lower(),
        "connect_timeout": f"{object_store.CONNECT_SECONDS}s",
        "timeout": f"{object_store.REQUEST_SECONDS}s",
        "max_retries": str(object_store.RETRIES),
        "retry_timeout": f"{object_store.RETRY_SECONDS}s",
    }


def folder(settings: Settings, table: Table, name: str = "") -> tuple[fs.FileSystem, str]:
    """Return pyarrow's file system, and the path in it of a table, or of a folder of the table."""
    path = "/".join(filter(None, (path_of(settings, table), name)))
    if (where := object_store.require_answering(settings)) is None:
        return _local(), path
    return _file_system(where), path.removeprefix("s3://")


@lru_cache(maxsize=1)
def _local() -> fs.FileSystem:
    return fs.LocalFileSystem()


@lru_cache(maxsize=8)
def _file_system(where: Address) -> fs.FileSystem:
    scheme, _, host = (where.endpoint or "").rstrip("/").rpartition("://")
    return fs.S3FileSystem(
        access_key=where.key_id,
        secret_key=where.secret,
        session_token=where.token,
        region=where.region,
        scheme=scheme or None,
        endpoint_override=host or None,
        connect_timeout=object_store.CONNECT_SECONDS,
        request_timeout=object_store.REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=object_store.RETRIES),
        allow_delayed_open=True,  # a small file is one request instead of three
    )
