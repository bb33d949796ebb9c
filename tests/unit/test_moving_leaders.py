"""How long Kafka is waited for while brokers move, refuse or are gone; all of it made up."""

from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from shardpost.errors import ShardpostError
from shardpost.kafka import clients, offsets, topic_metadata
from shardpost.kafka import kafka as kafka_module
from shardpost.kafka.kafka import GONE_SECONDS, Kafka, KafkaUnreachableError, Patience
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing
from shardpost.kafka.records import TopicPartition as Partition
from shardpost.kafka.topic_metadata import topic_configs
from shardpost.kafka.transactions import Transactions, anyone, produce
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.memory_kafka.admin import MemoryAdmin
from tests.support.memory_kafka.consumer import MemoryConsumer
from tests.support.memory_kafka.producer import MemoryProducer


def refuse_first(monkeypatch: pytest.MonkeyPatch, *codes: int | None) -> None:
    """Let a broker refuse with these codes, one after the other, to list offsets; then answer.

    None stands for no error and no offset: what the client makes of a broker that dies meanwhile.
    """
    own, left = MemoryAdmin.list_offsets, [*codes]

    def listed(admin: MemoryAdmin, specs: Any, **more: Any) -> dict[TopicPartition, "Future[Any]"]:
        found: dict[TopicPartition, Future[Any]] = own(admin, specs, **more)
        for place in found:
            if left:
                found[place], code = Future(), left.pop(0)
                if code is None:
                    found[place].set_result(SimpleNamespace(offset=OFFSET_INVALID, timestamp=-1))
                else:
                    found[place].set_exception(KafkaException(KafkaError(code)))
        return found

    monkeypatch.setattr(MemoryAdmin, "list_offsets", listed)
    monkeypatch.setattr("shardpost.kafka.kafka.LEADER_RETRY_SECONDS", 0)


def test_a_partition_whose_leader_moves_is_asked_again(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(installed(at).kafka, Outgoing("positions", b"1", None, [], 1))
    refuse_first(
        monkeypatch,
        *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT),
        *(KafkaError._DESTROY_BROKER, KafkaError._NOENT),
        *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
    )
    found = offsets.watermarks(installed(at).kafka, {"positions": 2}, committed=False)
    assert found == {"positions": {0: (0, 0), 1: (0, 1)}}


def test_a_question_that_timed_out_is_asked_again_by_a_new_client(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(installed(at).kafka, Outgoing("positions", b"1", None, [], 0))
    own, asked = MemoryAdmin.describe_topics, list[MemoryAdmin]()

    def described(admin: MemoryAdmin, *topics: Any, **more: Any) -> "dict[str, Future[Any]]":
        asked.append(admin)
        if admin is not asked[0]:
            return own(admin, *topics, **more)
        waits: Future[Any] = Future()  # for a controller that died
        waits.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return {"positions": waits}

    monkeypatch.setattr(MemoryAdmin, "describe_topics", described)
    assert topic_metadata.topic_ids(installed(at).kafka, ["positions"]).keys() == {"positions"}
    assert len(asked) == 2


def test_who_coordinated_a_group_and_does_not_answer_leaves_time_to_ask_who_does(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(installed(at).kafka, Outgoing("positions", b"1", None, [], 0))
    own, waited, asked = MemoryConsumer.committed, list[float](), list[MemoryConsumer]()

    def committed(reader: MemoryConsumer, partitions: Any, timeout: float) -> Any:
        waited.append(timeout)
        asked.append(reader)
        if len(waited) == 1:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return own(reader, partitions, timeout)

    monkeypatch.setattr(MemoryConsumer, "committed", committed)
    reader = installed(at).kafka.consumer("readers")
    assert offsets.committed_offset(installed(at).kafka, reader, Partition("positions", 0)) is None
    assert [id(one) == id(reader) for one in asked] == [True, False]
    assert sum(waited) <= at.kafka_timeout


def test_a_writer_whose_first_question_was_not_answered_asks_again(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, left = MemoryProducer.list_topics, [KafkaError._TIMED_OUT, KafkaError._TIMED_OUT]

    def listed(client: MemoryProducer, *args: Any, **more: Any) -> Any:
        if left:  # as librdkafka has it of metadata, it does not say that this may be retried
            raise KafkaException(KafkaError(left.pop()))
        return own(client, *args, **more)

    monkeypatch.setattr(MemoryProducer, "list_topics", listed)
    writer = Transactions(
        installed(at).kafka, "id", may_write=anyone, fenced="fenced", failed="failed: {reason}"
    )
    writer.open()
    writer.write([Outgoing("positions", b"1", None, [], 0)])
    writer.close()
    assert not left
    assert offsets.watermarks(installed(at).kafka, {"positions": 1}, committed=True) == {
        "positions": {0: (0, 2)}
    }


def test_a_first_question_to_a_silent_broker_is_asked_again_by_a_new_client(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, asked = MemoryAdmin.list_topics, list[MemoryAdmin]()

    def listed(client: MemoryAdmin, *args: Any, **more: Any) -> Any:
        asked.append(client)
        if client is asked[0]:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return own(client, *args, **more)

    monkeypatch.setattr(MemoryAdmin, "list_topics", listed)
    patient = at.model_copy(update={"kafka_timeout": 30})
    found = offsets.watermarks(installed(patient).kafka, {"positions": 1}, committed=False)
    assert found == {"positions": {0: (0, 0)}}
    assert len(asked) == 2


def test_no_offset_is_no_end(at: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(installed(at).kafka, Outgoing("positions", b"1", None, [], 0))
    refuse_first(monkeypatch, None, None)
    found = offsets.watermarks(installed(at).kafka, {"positions": 1}, committed=False)
    assert found == {"positions": {0: (0, 1)}}
    reader = installed(at).kafka.consumer("readers")
    codes = [KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.NOT_COORDINATOR]
    failed = (SimpleNamespace(offset=OFFSET_INVALID, error=KafkaError(c)) for c in reversed(codes))
    monkeypatch.setattr(MemoryConsumer, "committed", lambda *_, **__: [next(failed)])
    with pytest.raises(KafkaUnreachableError, match="unstable"):
        offsets.committed_offset(installed(at).kafka, reader, Partition("positions", 0))


@pytest.mark.parametrize(
    ("code", "seconds", "said"),
    [
        (KafkaError.NOT_LEADER_FOR_PARTITION, 0.05, "cannot be reached"),  # not for ever
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 30, "uthoriz"),  # which is final
    ],
)
def test_what_is_refused_for_ever_or_for_good_is_an_error(
    at: Settings, monkeypatch: pytest.MonkeyPatch, code: int, seconds: float, said: str
) -> None:
    refuse_first(monkeypatch, *[code] * 1_000_000)
    waiting = at.model_copy(update={"kafka_timeout": seconds})
    with pytest.raises(KafkaUnreachableError, match=said):
        offsets.watermarks(installed(waiting).kafka, {"positions": 2}, committed=True)


READ = Partition("positions", 0)


@pytest.mark.parametrize(
    "code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._TRANSPORT]
)
def test_a_reader_waits_for_the_leader_of_its_partition(
    at: Settings, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    consume, refusals = MemoryConsumer.consume, [code]

    def refused_first(reader: MemoryConsumer, most: int = 1, timeout: float = -1) -> list[Message]:
        if refusals:
            return [Message(*READ, 0, error=KafkaError(refusals.pop()))]
        return consume(reader, most, timeout)

    monkeypatch.setattr(MemoryConsumer, "consume", refused_first)
    produce(installed(at).kafka, Outgoing(READ.topic, b"1", None, [], READ.partition))
    assert [message.key() for message in read_to_end(installed(at).kafka, READ)] == [b"1"]
    assert refusals == []


def test_asking_for_a_topic_by_name_does_not_create_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []
    monkeypatch.setattr(Kafka, "factories", SimpleNamespace(admin=made.append))
    monkeypatch.setattr(Kafka, "require_listening", lambda _: None)
    installed(Settings()).kafka.admin()
    assert made[0]["allow.auto.create.topics"] is False


def failing(monkeypatch: pytest.MonkeyPatch, code: int, times: int) -> None:
    """Let Kafka answer so many times with that error."""
    answer, left = MemoryAdmin.describe_configs, [code] * times

    def describe(*args: Any, **kwargs: Any) -> Any:
        if left:
            raise KafkaException(KafkaError(left.pop()))
        return answer(*args, **kwargs)

    monkeypatch.setattr(MemoryAdmin, "describe_configs", describe)


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_while_brokers_restart_it_is_asked_again(
    at: Settings, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    topic = at.topic("positions")
    failing(monkeypatch, code, 2)
    assert topic_configs(installed(at).kafka, [topic])[topic]["cleanup.policy"] == "compact"
    failing(monkeypatch, code, 1000)
    with pytest.raises(KafkaUnreachableError):
        topic_configs(installed(at.model_copy(update={"kafka_timeout": 0.2})).kafka, [topic])


def test_without_the_right_the_error_says_what_to_allow(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)
    with pytest.raises(ShardpostError, match=r"allow DescribeConfigs on topic\(s\) a, b for"):
        topic_configs(installed(at).kafka, ["b", "a"])


ADDRESS = "kafka.test:9092"


@dataclass
class World:
    """A time that passes by sleeping, and an address that is there up to some instant."""

    now: float = 0
    gone_at: float = float("inf")
    back_at: float = float("inf")

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def why_nobody_listens(self, bootstrap: str, seconds: float) -> str | None:
        assert (bootstrap, seconds) == (ADDRESS, 2)
        return "connection refused" if self.gone_at <= self.now < self.back_at else None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(kafka_module, "time", made)
    monkeypatch.setattr(clients, "why_nobody_listens", made.why_nobody_listens)
    return made


def gives_up_after(world: World, waiting: Patience) -> float:
    while not waiting.is_over:
        world.sleep(1)
    return world.now


@pytest.fixture
def waiting(world: World) -> Patience:
    return Patience(installed(Settings(bootstrap_servers=ADDRESS, kafka_timeout=60)).kafka)


@pytest.mark.parametrize(
    ("gone_at", "back_at", "least", "most"),
    [
        (float("inf"), float("inf"), 61, 61),  # one that listens has the whole time
        (10, float("inf"), 10 + GONE_SECONDS, 44),  # one that is gone is given up soon
        (10, 20, 61, 61),  # one that restarts has the whole time
    ],
)
def test_kafka_is_waited_for_as_long_as_it_is_there(
    world: World, waiting: Patience, gone_at: float, back_at: float, least: float, most: float
) -> None:
    world.gone_at, world.back_at = gone_at, back_at
    assert least <= gives_up_after(world, waiting) <= most


def test_after_progress_the_time_begins_again(world: World, waiting: Patience) -> None:
    world.sleep(50)
    waiting.progress()
    assert waiting.seconds == 0
    assert gives_up_after(world, waiting) == 111


def test_before_the_first_request_nobody_is_waited_for(world: World) -> None:
    world.gone_at = 0
    with pytest.raises(KafkaUnreachableError, match="connection refused"):
        installed(Settings(bootstrap_servers=ADDRESS)).kafka.require_listening()
    assert world.now == 0


def test_a_kafka_that_was_there_may_restart_and_is_then_gone_at_once(world: World) -> None:
    settings = Settings(bootstrap_servers=ADDRESS)
    installed(settings).kafka.require_listening()
    world.gone_at, world.back_at = 0, 10
    installed(settings).kafka.require_listening()
    assert 10 <= world.now < 12
    world.back_at = float("inf")
    began = world.now
    for _ in range(3):  # the first of them waits
        with pytest.raises(KafkaUnreachableError):
            installed(settings).kafka.require_listening()
    assert GONE_SECONDS <= world.now - began < GONE_SECONDS + 1
