"""`python -m bench`: the benchmarks, on a broker of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from bench import (
    age,
    emails,
    growth,
    holders,
    increments,
    inputs,
    lag,
    letters,
    live,
    rebuilds,
    scale,
    workers,
)
from bench.likeness import compare
from shardpost.embedded import broker, daemons
from shardpost.settings import Settings, load


@click.group()
def main() -> None:
    """Measure Shardpost, on a broker of its own."""


@main.command("holders")
@click.option("--records", default=1_000_000, help="How many records at first.", show_default=True)
@click.option(
    "--more", default=10_000, help="How many more, for the increments.", show_default=True
)
@click.option("--runs", default=3, help="How often each is measured.", show_default=True)
@click.option(
    "--peer",
    type=click.Path(path_type=Path),
    envvar="BENCH_PEER",
    help="Folder with the peer's peer.sh; also BENCH_PEER.",
)
def holders_(records: int, more: int, runs: int, peer: Path | None) -> None:
    """Measure who holds, beside a Kafka Streams application, in turn."""
    with _broker(load().home / "bench") as settings:
        holders.measure(settings, peer, holders.Sizes(records, more, runs))


@main.command("emails")
@click.option("--clients", default=10_000, help="How many mails a week.", show_default=True)
@click.option("--runs", default=3, help="How many weeks.", show_default=True)
def emails_(clients: int, runs: int) -> None:
    """Measure the weekly e-mail, beside a bare loop of smtplib."""
    with _broker(load().home / "bench") as settings:
        emails.measure(settings, clients, runs)


@main.command("letters")
@click.option("--count", default=1_000_000, help="How many letters.", show_default=True)
@click.option("--runs", default=1, help="How often each is measured.", show_default=True)
def letters_(count: int, runs: int) -> None:
    """Measure sweeps of dead letters, beside a bare transactional producer."""
    with _broker(load().home / "bench") as settings:
        letters.measure(settings, count, runs)


@main.command("growth")
@click.option("--scale", default=1.0, help="1: up to 10,000,000 records.", show_default=True)
@click.option("--picture", type=click.Path(path_type=Path), default="docs/growth.svg")
def growth_(scale: float, picture: Path) -> None:
    """Measure how times grow with sizes: two curves, their exponents, a picture."""
    with _broker(load().home / "bench") as settings:
        growth.measure(settings, picture, scale)


@main.command("increments")
@click.option(
    "--positions", multiple=True, default=(200_000, 2_000_000), help="How many are there."
)
@click.option("--more", default=10_000, help="How many records more.", show_default=True)
@click.option("--runs", default=3, help="How many increments.", show_default=True)
def increments_(positions: tuple[int, ...], more: int, runs: int) -> None:
    """Measure what an increment costs beside what is there."""
    with _broker(load().home / "bench") as settings:
        increments.measure(settings, positions, more, runs)


@main.command("inputs")
@click.option("--records", default=1_000_000, help="How many records at first.", show_default=True)
@click.option("--more", default=1_000, help="How many records more.", show_default=True)
@click.option("--runs", default=3, help="How often each is measured.", show_default=True)
def inputs_(records: int, more: int, runs: int) -> None:
    """Measure inputs of other forms, in turn with plain JSON."""
    with _broker(load().home / "bench") as settings:
        inputs.measure(settings, records, more, runs)


@main.command("live")
@click.option("--positions", default=1_000_000, help="How many are there.", show_default=True)
@click.option("--rate", default=1_000, help="Records a second.", show_default=True)
@click.option("--seconds", default=60, help="For so long.", show_default=True)
@click.option("--burst", default=10_000, help="Records at once, after that.", show_default=True)
@click.option("--bursts", default=5, help="How often.", show_default=True)
@click.option("--idle", default=60, help="Seconds without any record.", show_default=True)
@click.option("--fold-age", default=3600, help="SHARDPOST_FOLD_AGE.", show_default=True)
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    help="Where to draw its latency, memory and files over that time (SVG).",
)
@click.option(
    "--peer",
    type=click.Path(path_type=Path),
    envvar="BENCH_PEER",
    help="Folder with the peer's peer.sh; also BENCH_PEER.",
)
def live_(peer: Path | None, picture: Path | None, fold_age: int, **sizes: int) -> None:
    """Measure how soon holders follow from a record while a compaction stays."""
    with _broker(load().home / "bench") as settings:
        own = settings.model_copy(update={"fold_age": fold_age})
        live.measure(own, peer, live.Load(**sizes), picture)


@main.command("workers")
@click.option("--records", default=5_000_000, help="How many records.", show_default=True)
@click.option("--count", "counts", multiple=True, default=(1, 2), help="How many workers.")
@click.option("--runs", default=3, help="How often each is measured.", show_default=True)
def workers_(records: int, counts: tuple[int, ...], runs: int) -> None:
    """Measure who holds on workers of a Spark cluster of its own, of one core each."""
    with _broker(load().home / "bench") as settings:
        workers.measure(settings, records, counts, runs)


@main.command("scale")
@click.option(
    "--records",
    multiple=True,
    default=(1_000_000, 5_000_000, 50_000_000),
    help="How many at first.",
)
@click.option("--memory", default="3g", help="The driver's heap.", show_default=True)
def scale_(records: tuple[int, ...], memory: str) -> None:
    """Measure a large home: from nothing, an increment, a fold, the audience of a week."""
    with _broker(load().home / "bench") as settings:
        scale.measure(settings, records, memory)


@main.command("age")
@click.option("--records", default=50_000, help="How many records at first.", show_default=True)
@click.option("--snapshots", default=2_000, help="How many the old home gets.", show_default=True)
@click.option("--runs", default=3, help="How often each is measured.", show_default=True)
@click.option("--likeness", is_flag=True, help="Compare a home with one that Spark let grow old.")
def age_(records: int, snapshots: int, runs: int, likeness: bool) -> None:
    """Measure what age costs, beside a young home; go on with the homes that are there."""
    with _broker(load().home / "bench") as settings:
        if likeness:
            compare(settings, records, snapshots)
        else:
            age.measure(settings, age.Ages(records, snapshots, runs))


@main.command("rebuilds")
@click.option("--records", default=5_000_000, help="How many records at first.", show_default=True)
@click.option("--runs", default=3, help="How often each is measured.", show_default=True)
def rebuilds_(records: int, runs: int) -> None:
    """Measure rebuilds beside a compaction from Kafka, swaps beside an increment."""
    with _broker(load().home / "bench") as settings:
        rebuilds.measure(settings, records, runs)


@main.command("lag")
@click.option("--groups", default=100, help="How many groups.", show_default=True)
@click.option("--partitions", default=1000, help="How many partitions.", show_default=True)
@click.option("--runs", default=5, help="How often it is measured.", show_default=True)
def lag_(groups: int, partitions: int, runs: int) -> None:
    """Measure `shardpost lag` with groups that are behind everywhere."""
    with _broker(load().home / "bench") as settings:
        lag.measure(settings, groups, partitions, runs)


@contextmanager
def _broker(home: Path) -> Iterator[Settings]:
    """Give a broker of the benchmarks' own; what was put into it stays for the next time."""
    home.mkdir(parents=True, exist_ok=True)
    settings = Settings.model_validate({"home": home, "kafka_port": daemons.choose_port()})
    broker.start(settings)
    try:
        yield settings
    finally:
        broker.stop(settings)


if __name__ == "__main__":
    main()
