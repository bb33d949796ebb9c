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

# share-holders has as many partitions as positions has when it is created.
AS_POSITIONS = frozenset({SHARE_HOLDERS.name})
INPUTS = (POSITIONS, CLIENTS, EXCHANGES)
DECLARED = (*INPUTS, SHARE_HOLDERS, WEEKLY_EMAILS)
