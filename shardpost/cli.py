"""The command `shardpost`.

Finds a command, runs it, and turns errors into one line and an exit code.
"""

import errno
import importlib
import sys
import traceback
from datetime import UTC, datetime

import click

from shardpost import __version__, logs
from shardpost.errors import BAD_USAGE, COULD_NOT, ShardpostError
from shardpost.printable import harmless

_FULL = (errno.ENOSPC, errno.EDQUOT)

# command -> module under shardpost.commands whose `command` it is; imported only when it is called.
COMMANDS: dict[str, str] = {
    "up": "up",
    "down": "down",
    "status": "status",
    "demo": "demo",
    "topics": "topics",
    "compact": "compact",
    "holders": "holders",
    "explain": "explain",
    "snapshots": "snapshots",
    "email": "email",
    "emails": "emails",
    "letters": "letters",
    "runs": "runs",
    "airflow": "airflow",
}


class Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands, in the order of the contract."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"shardpost.commands.{COMMANDS[cmd_name]}")
        found: click.Command = module.command
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def root() -> None:
    """Positions in Kafka become holders in Delta tables, and one weekly e-mail per client."""
    logs.configure()


def main() -> None:
    """Run the command line and exit with the contract's exit code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command; return its exit code."""
    try:
        code = root.main(argv, prog_name="shardpost", standalone_mode=False)
    except ShardpostError as error:
        return _say(str(error), error.exit_code)
    except click.ClickException as error:
        error.show(sys.stderr)
        return BAD_USAGE
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", COULD_NOT)
    except BrokenPipeError:
        return COULD_NOT
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            where = error.filename or "what it prints to"
            return _say(f"no room for {where}: {error.strerror}; make room, run again", COULD_NOT)
        return _say(_unexpected(error), COULD_NOT)
    return code if isinstance(code, int) else 0


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"shardpost: {harmless(text)}\n")
    return code


def _unexpected(error: Exception) -> str:
    from shardpost.settings import load

    folder = load().home / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"error-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    path.write_text("".join(traceback.format_exception(error)))
    return f"unexpected {type(error).__name__}: {error} (a fault of ours; the whole of it: {path})"
