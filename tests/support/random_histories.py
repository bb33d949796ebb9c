"""Random histories for hypothesis: few keys, so that they meet; timestamps in no order."""

from dataclasses import replace

from hypothesis import strategies

from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.view_tables import VIEW
from tests.support.histories import Batch, Record, close, country_of, put, reconcile, reject, retry

AMOUNTS = strategies.sampled_from(["0", "-1", "100"])
HOURS = strategies.integers(0, 9)
KEYS = strategies.sampled_from(["1", "2", "10", "it's"])
CLIENTS = strategies.sampled_from(["client1", "client2"])
EXCHANGES = strategies.sampled_from(["NASDAQ", "LON", "NEW"])
COUNTRIES = strategies.sampled_from(["US", "GB", None])
BACK = strategies.integers(0, 3)


def some_are_retries(
    records: strategies.SearchStrategy[Record],
) -> strategies.SearchStrategy[Record]:
    """Make some of the records retries of records before them, good, rejected and tombstones."""
    of_the_topic = records.filter(lambda record: record.kind is not RecordKind.RECONCILED)
    return strategies.one_of(records, records, strategies.builds(retry, of_the_topic, BACK))


POSITION_RECORDS = strategies.one_of(
    strategies.builds(put, KEYS, CLIENTS, EXCHANGES, HOURS, AMOUNTS),
    strategies.builds(close, KEYS, HOURS),
    strategies.builds(reject, KEYS, HOURS),
    strategies.builds(reconcile, KEYS, HOURS),
)
EXCHANGE_RECORDS = strategies.one_of(
    strategies.builds(country_of, EXCHANGES, COUNTRIES, HOURS),
    strategies.builds(close, EXCHANGES, HOURS),
    strategies.builds(reject, EXCHANGES, HOURS),
    strategies.builds(reconcile, EXCHANGES, HOURS),
)
BATCHES = strategies.builds(
    Batch,
    strategies.lists(some_are_retries(POSITION_RECORDS), max_size=12),
    strategies.lists(some_are_retries(EXCHANGE_RECORDS), max_size=6),
)
# Batches after the first of which tables stay as they were folded, now these, now those.
UNFOLDED = strategies.frozensets(strategies.sampled_from([t.name for t in VIEW if t.layer]))
LAYERED_BATCHES = strategies.lists(
    strategies.builds(replace, BATCHES, unfolded=UNFOLDED), min_size=1, max_size=5
)
