"""A second home on the same Kafka publishes nothing, until it is told to take over."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.compacting import agree, held
from tests.support.jobs_here import CommandsHere
from tests.support.record_streams import BAD, Stream
from tests.support.reference import Raw, position


def test_a_second_home_is_refused_before_spark_starts_until_it_takes_over(
    stream: Stream, spark: SparkSession, tmp_path: Path
) -> None:
    del spark  # the jobs find it
    settings = stream.settings
    stream.compact(position("1", "client1", "NASDAQ"), Raw("positions", b"2", BAD[1]))
    second = settings.model_copy(update={"home": tmp_path / "second"})
    first, other = CommandsHere(settings.environ()), CommandsHere(second.environ())
    line = other.refused("compact", code=1)
    assert f"belongs to the home {settings.home} on " in line
    assert not (tmp_path / "second" / "tables").exists()

    assert other.json("compact", "--take-over")["snapshot"]["snapshot"] == 1
    assert held(second) == {"client1": ["1"]}
    agree(second, stream.fold)
    assert f"belongs to the home {second.home} on " in first.refused("compact", code=1)
    other("compact")
