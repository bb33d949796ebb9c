"""`shardpost metrics`: what is measured now, for Prometheus."""

from datetime import UTC, datetime

import click

from shardpost.settings import load


@click.command()
def command() -> int:
    """Measure everything once and print it as OpenMetrics.

    What cannot be measured is left out: shardpost_source_up is 0 then.
    """
    from shardpost.watch.open_metrics import metrics_text

    click.echo(metrics_text(load(), datetime.now(UTC)), nl=False)
    return 0
