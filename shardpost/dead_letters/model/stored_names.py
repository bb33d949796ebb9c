"""The names of letters: of each in the store, which is its key in the parking lot too.

A letter lies in the partition of its original key, and its name is its id. Letters of one id in one
partition are one letter. So that no two others have one name, two kinds have names of their own:

- a **malformed** letter has no id, and its key may be anybody's, such as the number of an account:
  its name is its place, `topic-partition-offset@timestamp`;
- a **misplaced** letter lies in another partition, where no other sweep sees that there are two of
  its id: its name is the id with that partition, `id~partition`.

spark/letters_table_rows.py computes the same in the JVM; a test holds one against the other.
"""

import re

from shardpost.dead_letters.model.letter_format import Letter, Malformed
from shardpost.dead_letters.model.letter_names import MAX_KEY_BYTES, name_of
from shardpost.dead_letters.model.letters import letter_id
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Record


def parking_key(letter: Letter | Malformed, record: Record, partitions: int) -> bytes:
    """Return the key of a record of the store in the parking lot.

    The store has so many partitions. The same record always has the same key.
    """
    if isinstance(letter, Malformed):
        return letter_id(record.coordinates, record.timestamp).encode()
    raw_id = letter.id.encode()
    if not is_misplaced(letter, record, partitions) and not looks_named(letter.id, record.topic):
        return raw_id
    key = b"%s~%d" % (raw_id, record.partition)
    return key if len(key) <= MAX_KEY_BYTES else name_of(key).encode()


def is_misplaced(letter: Letter, record: Record, partitions: int) -> bool:
    """Tell whether a letter lies in another partition than that of its original key."""
    placing_key = letter.id if letter.origin_key is None else letter.origin_key
    return record.partition != partition_of(placing_key, partitions)


def looks_named(letter_id: str, store: str) -> bool:
    """Tell whether an id has the form of one of the other names, and so cannot be one itself."""
    return re.fullmatch(named_pattern(store), letter_id) is not None


def named_pattern(store: str) -> str:
    """Return the regular expression, of Python and of Java, of those forms, all of the text."""
    return rf"(?s)(?:.*~[0-9]+|{re.escape(store)}-[0-9]+-[0-9]+(?:@[0-9]+)?)"
