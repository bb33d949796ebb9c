"""`shardpost status`: the state of the embedded stack."""

import json

import click

from shardpost.commands.options import AS_JSON
from shardpost.settings import Settings, load


@click.command()
@AS_JSON
def command(as_json: bool) -> int:
    """Print state and address of broker, mail server and Airflow.

    Exit code 0, whatever is up: `shardpost doctor` is the check.
    """
    from shardpost.embedded import stack

    settings = load()
    found = stack.status(settings)
    click.echo(json.dumps(found) if as_json else as_text(settings, found))
    return 0


def as_text(settings: Settings, found: dict[str, dict[str, str]]) -> str:
    """Return a line per service: state, address, login and detail; then the folders."""
    lines = [f"{name:<8} {_service(state)}" for name, state in found.items()]
    folders = [f"{name:<8} {settings.home / name}" for name in ("mail", "logs")]
    return "\n".join([*lines, *folders])


def _service(found: dict[str, str]) -> str:
    login = f"  (user {found['user']}, password {found['password']})" if "user" in found else ""
    detail = f"  {found['detail']}" if "detail" in found else ""
    return f"{found['state']:<10} {found.get('address', '')}{login}{detail}".rstrip()
