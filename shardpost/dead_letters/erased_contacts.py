"""What the table `dead_letters` says of a client's letters, and how its contact leaves it; no JVM.

Those are the letters of some topics under the client's key. Their steps stay; what the errors say
is gone. The letters themselves are in Kafka as they were.
"""

import uuid
from collections.abc import Collection
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
from shardpost.dead_letters.letters_table_offsets import read_progress
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.delta import table_log
from shardpost.delta.erased_rows import files_with_contact, without_contact
from shardpost.delta.rewritten_files import commit_files
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.steps import step


def rows_with_contact(settings: Settings, topics: Collection[str], client: str) -> int:
    """Return how many rows have something of the client's letters of those topics."""
    version = table_log.newest_version(settings, DEAD_LETTERS)
    return 0 if version is None else sum(_find(settings, version, topics, client).values())


def erase_contact(settings: Settings, topics: Collection[str], client: str) -> int:
    """Commit a version without the contact, if there is any; return the rows that had it.

    Under the lock of the sweep, after any that is running: `lock_wait` at most. What the topics
    have by then is read first, so that no later sweep reads it into the table.
    """
    if table_log.newest_version(settings, DEAD_LETTERS) is None:
        return 0
    name = SWEEP_DEAD_LETTERS.name
    with exclusive(settings, name, name, wait=settings.lock_wait):
        opened = letters_table.open_table(settings)
        step("read letters")
        letters_table.append(settings, opened, read_progress(settings, opened))
        version = letters_table.open_table(settings).version()
        found = _find(settings, version, topics, client)
        if found:
            change = without_contact(DEAD_LETTERS, partial(_own, topics, client.encode()))
            files = dict.fromkeys(found, change)
            commit_files(settings, DEAD_LETTERS, version, files, str(uuid.uuid4()))
    return sum(found.values())


def _find(settings: Settings, version: int, topics: Collection[str], client: str) -> dict[str, int]:
    key = client.encode()
    own = partial(_own, topics, key)
    return files_with_contact(settings, DEAD_LETTERS, version, ("origin_key", key), own)


def _own(topics: Collection[str], key: bytes, rows: pa.Table) -> pa.Array:
    return pc.and_(
        pc.equal(rows["origin_key"], key), pc.is_in(rows["origin_topic"], pa.array([*topics]))
    )
