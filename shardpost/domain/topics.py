"""The topics that Shardpost reads and writes, as they are created."""

from dataclasses import dataclass, field

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class TopicSpec:
    """One declared topic: its name in the contract and its settings."""

    name: str
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

# When it is created, each of these has as many partitions as that other topic has.
AS_MANY_AS = {SHARE_HOLDERS.name: POSITIONS.name, RUN_COMMANDS.name: RUN_REQUESTS.name}
INPUTS = (POSITIONS, CLIENTS, EXCHANGES)
DECLARED = (*INPUTS, SHARE_HOLDERS, WEEKLY_EMAILS, RUN_REQUESTS, RUN_COMMANDS, DECISIONS)
