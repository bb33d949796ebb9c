"""The command `shardpost`: runs a subcommand, turns errors into one line and an exit code."""

import errno
import importlib
import signal
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile

import click
from click.shell_completion import CompletionItem

from shardpost import __version__, logs
from shardpost.errors import BAD_USAGE, COULD_NOT, NoSnapshotError, ShardpostError, harmless

# {what keeps a file from being written: what to do}
_FIXES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space and run the command again"),
    errno.EACCES: "give this user write access, or set SHARDPOST_HOME to another folder",
    errno.EROFS: "mount that disk writable, or set SHARDPOST_HOME to a folder on another disk",
}

# {command: its module of shardpost.commands}, in the order of `--help`. A module is imported
# only when one of its commands is called; the command `up` is its `up_command`.
COMMANDS = {
    "up": "stack",
    "down": "stack",
    "status": "stack",
    "doctor": "monitoring",
    "demo": "stack",
    "topics": "topics",
    "compact": "positions",
    "import": "positions",
    "inputs": "inputs",
    "holders": "holders",
    "explain": "holders",
    "snapshots": "holders",
    "sql": "tables",
    "tables": "tables",
    "rebuild": "rebuild",
    "email": "email",
    "emails": "emails",
    "erase": "tables",
    "letters": "letters",
    "runs": "runs",
    "lag": "topics",
    "alerts": "monitoring",
    "metrics": "monitoring",
    "dags": "stack",
    "jars": "stack",
    "airflow": "stack",
}
# Another program takes the place of this process.
WITHOUT_PROGRESS = {"airflow"}


class Commands(click.Group):
    """Commands that are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of `--help`."""
        return list(COMMANDS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what completes a word; the names of commands without importing them."""
        names = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"shardpost.commands.{COMMANDS[cmd_name]}")
        found: click.Command = getattr(module, f"{cmd_name}_command")
        _keep_first_sentences(found)
        return found


LONGEST_SENTENCE = 500


def _keep_first_sentences(command: click.Command) -> None:
    """Let lists of commands wrap the first sentence of each; click cuts it off otherwise."""
    command.short_help = command.get_short_help_str(LONGEST_SENTENCE)
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _keep_first_sentences(one)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def root() -> None:
    """Turn positions in Kafka into tables of holders, and e-mail each client once a week."""
    logs.configure_logging()


def main() -> None:
    """Run the command line and exit with the contract's exit code.

    SIGTERM ends a command as Ctrl-C does: what it started, such as Spark, ends with it.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    argv = sys.argv[1:]
    command = argv[0] if argv else ""
    if command not in COMMANDS or command in WITHOUT_PROGRESS:
        sys.exit(run(argv))
    with logs.line_shown(command):
        code = run(argv)
    sys.exit(code)


def run(argv: list[str]) -> int:
    """Run one command; return its exit code."""
    if given := _empty_value(argv):
        return _fail(f"{given}: expected a value, found an empty string", BAD_USAGE)
    try:
        code = root.main(argv, prog_name="shardpost", standalone_mode=False)
    except ShardpostError as error:
        return _fail(f"{error}{_hint(error)}", error.exit_code)
    except click.ClickException as error:
        _explained(error).show(sys.stderr)
        return BAD_USAGE
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", COULD_NOT)
    except BrokenPipeError:
        return COULD_NOT
    except Exception as error:
        from shardpost.delta.object_store import describe_error  # not for `--help` and completion

        line = _not_written(error) or describe_error(error) or _internal_error(error)
        return _fail(line, COULD_NOT)
    return code if isinstance(code, int) else 0


def _explained(error: click.ClickException) -> click.ClickException:
    """Return an error with near names, or with the help of an option that is missing."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    match error:
        case click.NoSuchCommand(command_name=name) if ctx and isinstance(ctx.command, click.Group):
            return click.NoSuchCommand(name, None, ctx.command.list_commands(ctx), ctx)
        case click.NoSuchOption(possibilities=None | [], option_name=name) if ctx:
            options = [one for one in ctx.command.params if isinstance(one, click.Option)]
            word = name.strip("-").casefold()
            if near := [one.opts[-1] for one in options if word in (one.help or "").casefold()]:
                text = f"{error.message} Did you mean {' or '.join(near)}?"
                return click.NoSuchOption(name, text, ctx=ctx)
        case click.MissingParameter(param=click.Option(help=str(text)) as option):
            return click.MissingParameter(text, ctx, option)
    return error


def _empty_value(argv: list[str]) -> str | None:
    """Return the option, or argument, that is given and empty: a filter would choose all."""
    for before, given in pairwise(["", *argv] if argv[:1] != ["airflow"] else []):
        if not given:
            return before if before[:2] == "--" else _arguments(argv)
        if given[:2] == "--" and given.find("=") == len(given) - 1:
            return given[:-1]
    return None


def _arguments(argv: list[str]) -> str:
    """Return the names of the arguments that a command takes."""
    command: click.Command = root
    for word in argv:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word) or command
    names = [one.human_readable_name for one in command.params if isinstance(one, click.Argument)]
    return " or ".join(names) or "argument"


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"shardpost: {harmless(text)}\n")
    return code


def _hint(error: ShardpostError) -> str:
    """Return which home may have been meant, where this one has nothing."""
    if not isinstance(error, NoSnapshotError):
        return ""
    from shardpost.embedded.stack import hint_at_other_home
    from shardpost.settings import load

    return hint_at_other_home(load())


def _not_written(error: Exception) -> str | None:
    fix = _FIXES.get(error.errno or 0) if isinstance(error, OSError) else None
    if fix is None or not isinstance(error, OSError):
        return None
    where = error.filename or "standard output"
    return f"cannot write {where}: {error.strerror}; {fix}"


def _internal_error(error: Exception) -> str:
    """Write the traceback to a file, and return one line that names it; never raises."""
    text = "".join(traceback.format_exception(error))
    where = "the traceback cannot be written"
    for write in (_write_to_logs, _write_to_temporary):
        with suppress(Exception):
            where = f"traceback in {write(text)}"
            break
    return f"internal error: {type(error).__name__}: {error}; {where}"


def _write_to_logs(text: str) -> Path:
    from shardpost.settings import load

    path = load().folder("logs") / f"error-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    path.write_text(text)
    return path


def _write_to_temporary(text: str) -> Path:
    """Write where the settings, or the folder that they name, may be what is wrong."""
    with NamedTemporaryFile("w", prefix="shardpost-error-", suffix=".log", delete=False) as file:
        file.write(text)
        return Path(file.name)
