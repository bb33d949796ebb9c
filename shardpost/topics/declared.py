"""The topics that Shardpost reads and writes, as they are created."""

from dataclasses import dataclass, field

from shardpost.topic_names import TopicName

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class TopicSpec:
    """One declared topic: its name in the contract and its settings."""

    name: TopicName
    config: dict[str, str]
    starter: dict[str, dict[str, str]] = field(default_factory=dict)


COMPACT = {"cleanup.policy": "compact"}

# Given to `exchanges` when it is created: code -> country.
STARTER_COUNTRIES = {
    "NASDAQ": "US",
    "NYSE": "US",
    "AMEX": "US",
    "ARCA": "US",
    "BATS": "US",
    "IEX": "US",
    "LON": "GB",
    "PAR": "FR",
    "FRA": "DE",
    "TYO": "JP",
    "HKG": "HK",
    "TOR": "CA",
    "SYD": "AU",
}

POSITIONS = TopicSpec("positions", COMPACT | {"min.compaction.lag.ms": str(DAY_MS)})
CLIENTS = TopicSpec("clients", COMPACT)
EXCHANGES = TopicSpec(
    "exchanges",
    COMPACT,
    {code: {"Exchange": code, "Country": country} for code, country in STARTER_COUNTRIES.items()},
)
SHARE_HOLDERS = TopicSpec("share-holders", COMPACT)
WEEKLY_EMAILS = TopicSpec("weekly-emails", COMPACT)
RUN_REQUESTS = TopicSpec("run-requests", {"cleanup.policy": "delete"})
RUN_COMMANDS = TopicSpec("run-commands", COMPACT)
DECISIONS = TopicSpec("decisions", {"cleanup.policy": "delete", "retention.ms": str(365 * DAY_MS)})

# Records of one megabyte, Kafka's usual limit, with the headers of a letter; whatever fits into the
# store fits into where it goes from there.
STORED_BYTES = 2 << 20
PASSED_ON_BYTES = STORED_BYTES + (64 << 10)
# What a letter is more than its record: headers of its own, and the error.
LETTER_BYTES = 8_192
# For a day nothing is cleaned, so that every step of a letter's life is read; for two days at most
# a letter that was dealt with is kept; the cleaner never touches the segment that is written to.
_LETTERS = COMPACT | {
    "min.compaction.lag.ms": str(DAY_MS),
    "max.compaction.lag.ms": str(2 * DAY_MS),
    "delete.retention.ms": str(DAY_MS),
    "segment.ms": str(DAY_MS // 4),
}
DEAD_LETTERS = TopicSpec("dead-letters", _LETTERS | {"max.message.bytes": str(STORED_BYTES)})
PARKING_LOT = TopicSpec("parking-lot", _LETTERS | {"max.message.bytes": str(PASSED_ON_BYTES)})
RETRIES = TopicSpec(
    "retries",
    {
        "cleanup.policy": "delete",
        "retention.ms": str(7 * DAY_MS),
        "max.message.bytes": str(PASSED_ON_BYTES),
    },
)

# When it is created, each of these has as many partitions as that other topic has.
AS_MANY_AS = {SHARE_HOLDERS.name: POSITIONS.name, RUN_COMMANDS.name: RUN_REQUESTS.name}
# dead-letters has as many as the largest topic that letters are of has then.
AS_LARGEST = frozenset({DEAD_LETTERS.name})
INPUTS = (POSITIONS, CLIENTS, EXCHANGES)
OF_LETTERS = (DEAD_LETTERS, RETRIES, PARKING_LOT, DECISIONS)
OF_RUNS = (RUN_REQUESTS, RUN_COMMANDS)
DECLARED = (*INPUTS, SHARE_HOLDERS, WEEKLY_EMAILS, *OF_LETTERS, *OF_RUNS)
