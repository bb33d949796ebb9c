"""The topics that Shardpost reads and writes, as they are created."""

from dataclasses import dataclass, field

from shardpost.values.topic_names import TopicName

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class TopicSpec:
    """One declared topic; without any record it is given all of `starter`, {key: value}."""

    name: TopicName
    config: dict[str, str]
    starter: dict[str, dict[str, str]] = field(default_factory=dict)


# What a broker may say otherwise in its own settings is said of each topic.
_COMMON = {"unclean.leader.election.enable": "false"}
# A tombstone is there for a day: a reader that is behind for longer notices that it may be gone.
COMPACT = _COMMON | {"cleanup.policy": "compact", "delete.retention.ms": str(DAY_MS)}
_DELETE = _COMMON | {"cleanup.policy": "delete", "retention.bytes": "-1"}

# Written to `exchanges` when it is created: {code: country}.
STARTER_COUNTRIES = dict.fromkeys(("NASDAQ", "NYSE", "AMEX", "ARCA", "BATS", "IEX"), "US") | {
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
# The list of a client with hundreds of thousands of positions is one record, which compresses well.
SHARE_HOLDERS = TopicSpec(
    "share-holders", COMPACT | {"max.message.bytes": str(8 << 20), "compression.type": "zstd"}
)
WEEKLY_EMAILS = TopicSpec("weekly-emails", COMPACT)
RUN_REQUESTS = TopicSpec("run-requests", _DELETE | {"retention.ms": str(7 * DAY_MS)})
RUN_COMMANDS = TopicSpec("run-commands", COMPACT)
DECISIONS = TopicSpec("decisions", _DELETE | {"retention.ms": str(365 * DAY_MS)})

# Records of one megabyte, Kafka's default limit, with the headers of a letter; whatever fits into
# the store fits into the topics that it is passed on to.
STORED_BYTES = 2 << 20
PASSED_ON_MORE = 64 << 10
PASSED_ON_BYTES = STORED_BYTES + PASSED_ON_MORE
# What producers of letters may send: the topics decide, also where their limits were raised.
PRODUCED_BYTES = 64 << 20
# What a letter adds to its record: its own headers, with the error.
LETTER_BYTES = 8_192
# Nothing is compacted for a day, so that every step of a letter's life is read; a closed letter is
# kept for two days at most; the segment that is written to is never compacted.
_LETTERS = COMPACT | {
    "min.compaction.lag.ms": str(DAY_MS),
    "max.compaction.lag.ms": str(2 * DAY_MS),
    "segment.ms": str(DAY_MS // 4),
}
# Letters are delayed by the broker's clock, since that of a consumer may be wrong.
DEAD_LETTERS = TopicSpec(
    "dead-letters",
    _LETTERS | {"max.message.bytes": str(STORED_BYTES), "message.timestamp.type": "LogAppendTime"},
)
PARKING_LOT = TopicSpec("parking-lot", _LETTERS | {"max.message.bytes": str(PASSED_ON_BYTES)})
# The only copy of what was retried: for as long as Kafka, by default, remembers a group's offsets,
# and however much there is.
RETRIES = TopicSpec(
    "retries",
    _DELETE | {"retention.ms": str(7 * DAY_MS), "max.message.bytes": str(PASSED_ON_BYTES)},
)

# Each of these is created with as many partitions as the other topic has; `dead-letters` with as
# many as the largest topic that letters come from.
PARTITIONS_AS = {SHARE_HOLDERS.name: POSITIONS.name, RUN_COMMANDS.name: RUN_REQUESTS.name}
# Shardpost alone writes them, always with keys, and of each key only the last record matters: they
# can be compacted at any time. Not so the dead letters: consumers write them, some without a key.
OWN_STORES = frozenset(
    {SHARE_HOLDERS.name, WEEKLY_EMAILS.name, PARKING_LOT.name, RUN_COMMANDS.name}
)
# Whose values have a form of Shardpost's own, and not that of who else writes them.
OWN_VALUES = (SHARE_HOLDERS, WEEKLY_EMAILS, DECISIONS, RUN_REQUESTS, RUN_COMMANDS)
INPUTS = (POSITIONS, CLIENTS, EXCHANGES)
LETTER_TOPICS = (DEAD_LETTERS, RETRIES, PARKING_LOT, DECISIONS)
DECLARED = (*INPUTS, SHARE_HOLDERS, WEEKLY_EMAILS, *LETTER_TOPICS, RUN_REQUESTS, RUN_COMMANDS)
