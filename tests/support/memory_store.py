"""An object store in memory, for settings that say that the tables are on one."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from obstore.store import MemoryStore

from shardpost.delta import object_store
from shardpost.settings import Settings

STORE = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "here",
}


@contextmanager
def memory_store(settings: Settings) -> Iterator[Settings]:
    """Yield settings whose tables are in memory, for their small objects; no table can be there."""
    stored = MemoryStore()
    with patch.object(object_store, "_store", lambda *_, **__: stored):
        yield settings.model_copy(update={"tables": "s3://bucket/tables", "store": STORE})
