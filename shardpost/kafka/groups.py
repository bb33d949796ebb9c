"""The consumer groups of the cluster: their members' partitions, and what they have committed."""

import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from typing import Any

from confluent_kafka import KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka import group_questions
from shardpost.kafka.group_questions import OFFSETS_TOPIC, Group, Groups
from shardpost.kafka.kafka import Kafka, Patience

__all__ = ["OFFSETS_TOPIC", "Group", "Groups", "delete_groups", "groups"]

ASKING = (sys.executable, "-m", group_questions.__name__)
# Of one question: it waits for coordinators, then for three answers.
MOST_TIMEOUTS = 5


def groups(kafka: Kafka, only: Collection[str] = ()) -> Groups:
    """Return the groups, or those of these names; KafkaUnreachableError if they are not listed."""
    if kafka.is_in_process:
        try:
            return group_questions.find_groups(kafka.admin(), only, kafka.timeout)
        except KafkaException as error:
            raise kafka.unreachable(error) from None
    return group_questions.groups_of(_asked(kafka, only))


def delete_groups(kafka: Kafka, names: Sequence[str]) -> None:
    """Delete groups, with what they have committed; ShardpostError names the first that stays."""
    if not names:
        return
    for name, why in _asked(kafka, names, delete=True)["undeleted"].items():
        raise ShardpostError(f"group {name}: it cannot be deleted: {why}")


def _asked(kafka: Kafka, names: Collection[str], *, delete: bool = False) -> dict[str, Any]:
    """Return the answer to a question; asked again, as Patience allows, if the client dies."""
    kafka.require_listening()
    asked = {
        "client": kafka.config(),
        "names": [*names],
        "seconds": kafka.timeout,
        "delete": delete,
    }
    patience = Patience(kafka)
    while (answer := _answer(asked)) is None:
        if patience.is_over:
            raise kafka.unreachable(RuntimeError("its client ended without an answer"))
    if "error" in answer:
        raise kafka.unreachable(RuntimeError(answer["error"]))
    return answer


def _answer(asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a client in a process of its own answers; None if it died."""
    try:
        done = subprocess.run(
            ASKING,
            input=json.dumps(asked),  # it has secrets
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=MOST_TIMEOUTS * asked["seconds"],
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return answer
