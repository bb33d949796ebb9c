"""`shardpost airflow`: Airflow's own command line, as in `shardpost airflow dags list`."""

import os

import click

# Airflow's command line says at each start that it cannot draw DAGs; nothing here draws them.
QUIET = "ignore:Could not import graphviz:UserWarning"


@click.command(
    context_settings={"ignore_unknown_options": True},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run Airflow's own command line on this stack."""
    from shardpost.embedded.airflow_home import BIN, process_environment
    from shardpost.settings import load

    airflow = str(BIN / "airflow")
    warnings = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), QUIET)))
    environment = process_environment(load()) | {"PYTHONWARNINGS": warnings}
    os.execve(airflow, [airflow, *arguments], environment)  # noqa: S606
