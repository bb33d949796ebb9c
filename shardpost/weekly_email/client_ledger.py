"""One client in the ledger: what it says of it is put under a hash of the client.

That a mail was sent must stay: else the client could be mailed again. Its id, and reasons, which
often have its address, must not.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import partition_counts, watermarks_of
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing
from shardpost.settings import Settings
from shardpost.weekly_email import ledger_topic
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import (
    DeliveryState,
    LedgerEntry,
    decode,
    erased_id,
    ledger_id,
)

REASON = "erased"
Entries = dict[str, dict[IsoWeek, LedgerEntry]]
_KEY = re.compile(rb"([0-9]{4}-W[0-9]{2})/")


@dataclass(frozen=True)
class ClientLedger:
    """The last entry of a client in each week that has one, as the ledger was up to `end`.

    `erased` are the weeks that have one under its hash already.
    """

    client: str
    shard: int
    end: int
    entries: dict[IsoWeek, LedgerEntry]
    erased: frozenset[IsoWeek]


def find(settings: Settings, client: str) -> ClientLedger:
    """Return what the ledger says of a client under its own id."""
    topic = settings.topic("weekly-emails")
    shard = partition_of(client, partition_counts(settings, [topic])[topic])
    _, end = watermarks_of(settings, TopicPartition(topic, shard), committed=False)
    found: Entries = {client: {}, erased_id(client): {}}
    for own, week, entry in _entries(settings, client, shard, None):
        found[own][week] = entry
    erased = frozenset(week for week, entry in found[erased_id(client)].items() if entry.state)
    return ClientLedger(client, shard, end, found[client], erased)


def erase(settings: Settings, known: ClientLedger, week: IsoWeek, *, is_member: bool) -> bool:
    """Put what the ledger says of a client in a week under its hash; False if it says nothing.

    A member of the audience that was not mailed yet becomes `suppressed`: it is not mailed. Behind
    the fence of a sender: a run that has begun can commit nothing any more.
    """
    with closing(Ledger(settings, week, known.shard)) as ledger:
        ledger.fence()
        last = known.entries.get(week)
        for own, one, entry in _entries(settings, known.client, known.shard, known.end):
            last = entry if (own, one) == (known.client, week) else last
        records = list(_records(settings, known, week, last, is_member=is_member))
        ledger.write([], records)
        return bool(records)


def _records(
    settings: Settings,
    known: ClientLedger,
    week: IsoWeek,
    last: LedgerEntry | None,
    *,
    is_member: bool,
) -> Iterator[Outgoing]:
    name = erased_id(known.client)
    if last is not None and last.state is not None:
        is_sending = last.state is DeliveryState.SENDING  # nobody is sending it any more
        state = DeliveryState.UNKNOWN if is_sending else last.state
        erased = replace(last, client=name, state=state, reason=REASON)
    elif is_member and week not in known.erased:
        erased = LedgerEntry(name, DeliveryState.SUPPRESSED, reason=REASON)
    else:
        return
    if last is not None:
        own = LedgerEntry(known.client, None).key(week)
        yield ledger_topic.tombstone(settings, own, known.shard, REASON)
    topic = settings.topic("weekly-emails")
    yield Outgoing(topic, erased.key(week), erased.value(), [], known.shard)


def _entries(
    settings: Settings, client: str, shard: int, start: int | None
) -> Iterator[tuple[str, IsoWeek, LedgerEntry]]:
    """Yield the client's entries from an offset on, oldest first: under which id, week, entry."""
    ids = {ledger_id(client): client, erased_id(client): erased_id(client)}
    own = {name.encode(errors="surrogatepass"): one for name, one in ids.items()}
    partition = TopicPartition(settings.topic("weekly-emails"), shard)
    for message in read_to_end(settings, partition, start=start):
        key = message.key() or b""
        found = _KEY.match(key)
        if not found or key[found.end() :] not in own:
            continue
        week = IsoWeek.parse(found[1].decode())
        entry = decode(key, message.value(), week)
        assert entry is not None  # noqa: S101 - its key has the week
        yield own[key[found.end() :]], week, entry
