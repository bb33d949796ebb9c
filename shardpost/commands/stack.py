"""The embedded stack: `shardpost up`, `down`, `status`, `demo`, and Airflow's command line."""

import os
from contextlib import suppress
from datetime import UTC, datetime

import click

from shardpost.commands.console import AS_JSON, print_document
from shardpost.errors import ShardpostError
from shardpost.installation import opened
from shardpost.locks.shared_files import Files


@click.command()
@AS_JSON
def status_command() -> int:
    """Print state and address of broker, mail server and Airflow.

    Exit code 0, whatever is up: `shardpost doctor` is the check.
    """
    from shardpost.embedded import stack

    installation = opened()
    found = stack.status(installation.settings) | _follower(installation.files)
    print_document(found, lambda: status_text(installation.files, found))
    return 0


def _follower(files: Files) -> dict[str, dict[str, str]]:
    """Return the compaction that follows the topics, as one more service; nothing if none does."""
    from shardpost.holders.following import following

    now = datetime.now(UTC)
    with suppress(ShardpostError):  # the store is away, which is not asked here
        if one := following(files, now):
            return {"follow": {"state": "up", "detail": f"{one.holder}: {one.summary(now)}"}}
    return {}


def status_text(files: Files, found: dict[str, dict[str, str]]) -> str:
    """Return a line per service: state, address, login and detail; then the folders."""
    lines = [f"{name:<8} {_service_text(state)}" for name, state in found.items()]
    folders = [f"{name:<8} {files.home / name}" for name in ("mail", "logs")]
    return "\n".join([*lines, *folders])


def _service_text(found: dict[str, str]) -> str:
    login = f"  (user {found['user']}, password {found['password']})" if "user" in found else ""
    detail = f"  {found['detail']}" if "detail" in found else ""
    return f"{found['state']:<10} {found.get('address', '')}{login}{detail}".rstrip()


@click.command()
@click.option("--no-airflow", is_flag=True, help="Start the broker and the mail sink only.")
def up_command(no_airflow: bool) -> int:
    """Start the embedded stack.

    Returns when all services are healthy; those that are running already are left alone.
    """
    from shardpost.embedded import stack

    installation = opened()
    stack.up(
        installation.settings,
        with_airflow=not no_airflow,
        say=lambda line: click.echo(line, err=True),
    )
    click.echo(status_text(installation.files, stack.status(installation.settings)))
    return 0


@click.command()
def down_command() -> int:
    """Stop the embedded stack; its data is kept."""
    from shardpost.embedded import stack

    stack.down(opened().settings, say=lambda line: click.echo(line, err=True))
    return 0


@click.command()
@click.option("--keep", is_flag=True, help="Keep its stack running, to explore it.")
def demo_command(keep: bool) -> int:
    """Run the whole pipeline on five positions, end to end.

    Uses a fresh stack with a home and ports of its own, so it does not disturb one that is running.
    """
    from shardpost.embedded import demo

    demo.run_demo(opened().settings, now=datetime.now(UTC), keep=keep, say=click.echo)
    return 0


# Airflow's command line says at each start that it cannot draw DAGs; nothing here draws them.
IGNORED_WARNING = "ignore:Could not import graphviz:UserWarning"


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def airflow_command(arguments: tuple[str, ...]) -> None:
    """Run Airflow's own command line on this stack."""
    from shardpost.embedded.airflow_home import BIN, process_environment

    airflow = str(BIN / "airflow")
    warnings = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), IGNORED_WARNING)))
    environment = process_environment(opened().settings) | {"PYTHONWARNINGS": warnings}
    os.execve(airflow, [airflow, *arguments], environment)  # noqa: S606
