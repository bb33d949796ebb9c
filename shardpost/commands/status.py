"""`shardpost status`: what is true of the embedded stack now."""

import json

import click

from shardpost.commands.options import AS_JSON
from shardpost.settings import Settings, load


@click.command()
@AS_JSON
def command(as_json: bool) -> int:
    """Say of broker, mail server and Airflow whether they are up, and where."""
    from shardpost.embedded import stack

    settings = load()
    found = stack.status(settings)
    click.echo(json.dumps(found) if as_json else in_words(settings, found))
    return 0


def in_words(settings: Settings, found: dict[str, dict[str, str]]) -> str:
    """Return one line a part: state, address, login and detail; then where mail and logs are."""
    lines = [f"{name:<8} {_part(state)}" for name, state in found.items()]
    folders = [f"{name:<8} {settings.home / name}" for name in ("mail", "logs")]
    return "\n".join([*lines, *folders])


def _part(found: dict[str, str]) -> str:
    login = f"  (user {found['user']}, password {found['password']})" if "user" in found else ""
    detail = f"  {found['detail']}" if "detail" in found else ""
    return f"{found['state']:<10} {found.get('address', '')}{login}{detail}".rstrip()
