"""`python -m bench`: the benchmarks, on a broker of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from bench import holders, letters
from shardpost.embedded import broker, ports
from shardpost.settings import Settings, load


@click.group(invoke_without_command=True)
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
@click.pass_context
def main(context: click.Context, records: int, more: int, runs: int, peer: Path | None) -> None:
    """Measure compactions beside their peer, in turn, in one run; print a table."""
    if context.invoked_subcommand is not None:
        return
    with _broker(load().home / "bench") as settings:
        holders.measure(settings, peer, holders.Sizes(records, more, runs))


@main.command("letters")
@click.option("--count", default=1_000_000, help="How many letters.", show_default=True)
@click.option("--runs", default=1, help="How often each is measured.", show_default=True)
def letters_command(count: int, runs: int) -> None:
    """Measure sweeps of dead letters beside a bare transactional producer; print a table."""
    with _broker(load().home / "bench") as settings:
        letters.measure(settings, count, runs)


@contextmanager
def _broker(home: Path) -> Iterator[Settings]:
    """Give a broker of the benchmarks' own; what was put into it stays for the next time."""
    home.mkdir(parents=True, exist_ok=True)
    settings = Settings.model_validate({"home": home, "kafka_port": ports.choose()})
    broker.start(settings)
    try:
        yield settings
    finally:
        broker.stop(settings)


if __name__ == "__main__":
    main()
