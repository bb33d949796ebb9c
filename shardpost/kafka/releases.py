"""Kafka's releases, by the newest `metadata.version` of each, and which are known to lose data."""

# The highest level of each release, of org.apache.kafka.server.common.MetadataVersion.
LEVELS = {21: "3.9 or older", 25: "4.0", 27: "4.1", 29: "4.2"}
NEWER = "4.3 or newer"
WITHOUT_LOSS = "Kafka 4.2, or one with that fix"
WHICH_RELEASE = "docs/decisions/0015-the-embedded-broker-is-kafka-4-2.md"


def release(level: int) -> str:
    """Return the release whose newest metadata version has that level."""
    return next((name for highest, name in LEVELS.items() if level <= highest), NEWER)


def known_loss(found: str) -> str | None:
    """Return what is known to be lost by a release; None if nothing is."""
    if found == NEWER:
        return (
            "loses ends of transactions when a broker starts while a partition has no leader"
            " (KAFKA-20734)"
        )
    return None
