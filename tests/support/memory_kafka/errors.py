"""The errors of librdkafka that a client in memory raises, with its texts."""

from confluent_kafka import KafkaError, KafkaException


def refused(code: int, reason: str | None = None) -> KafkaException:
    """Return an error of one call, after which the client goes on."""
    return KafkaException(KafkaError(code, reason))


def must_abort(code: int, reason: str) -> KafkaException:
    """Return an error after which the transaction can only be aborted."""
    return KafkaException(KafkaError(code, reason, txn_requires_abort=True))


def fenced(doing: str) -> KafkaException:
    """Return what a producer raises for ever once a newer one has its transactional id."""
    reason = f"Failed to {doing}: Local: This instance has been fenced by a newer instance"
    return KafkaException(KafkaError(KafkaError._FENCED, reason, fatal=True))


def wrong_state(state: str) -> KafkaException:
    """Return the error of a call that is not allowed now."""
    return refused(KafkaError._STATE, f"Operation not valid in state {state}")
