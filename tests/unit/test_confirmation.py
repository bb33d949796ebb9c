"""What cannot be undone is a plan until --apply, or asks on a terminal and takes --yes."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shardpost import cli
from shardpost.delta import snapshots
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.rebuild import State
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.rebuilds.run import begun
from tests.support import decisions
from tests.support.command_line import CommandLineHere
from tests.support.histories import overwrite, snapshot
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka

NO = "shardpost: not confirmed: nothing was changed"


def every_command(
    group: click.Group, name: str = "shardpost"
) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something, with its name."""
    with click.Context(group) as ctx:
        for word in group.list_commands(ctx):
            command = group.get_command(ctx, word)
            assert command is not None
            if isinstance(command, click.Group):
                yield from every_command(command, f"{name} {word}")
            if not isinstance(command, click.Group) or command.invoke_without_command:
                yield f"{name} {word}", command


def options(command: click.Command) -> set[str]:
    return {option for param in command.params for option in param.opts}


def test_whoever_gives_a_reason_confirms_it_or_applies_a_plan() -> None:
    giving = [(name, options(one)) for name, one in every_command(cli.root)]
    without = [name for name, has in giving if "--why" in has and not {"--yes", "--apply"} & has]
    assert len(giving) > 30
    assert without == [
        "shardpost emails pause",
        "shardpost emails resume",
        "shardpost alerts silence",
        "shardpost alerts unsilence",
    ]  # undone by another


def test_the_commands_of_the_contract_ask() -> None:
    asking = {name for name, one in every_command(cli.root) if "--yes" in options(one)}
    assert asking >= {
        *("shardpost erase", "shardpost topics apply"),
        *("shardpost rebuild swap", "shardpost rebuild drop"),
    }


def test_topics_are_created_once_a_person_has_agreed(tmp_path: Path) -> None:
    with memory_kafka(home=tmp_path, partitions=2, kafka_timeout=30) as kafka:
        shardpost = CommandLineHere(kafka.settings.environ())
        code, out, err = shardpost.typed("n\n", "topics", "apply")
        assert (code, out) == (1, "")
        assert "topic positions: would be created with 2 partitions\n" in err
        assert err.endswith(f"Do that? [y/N]: {NO}\n")
        assert "created" in shardpost.typed("y\n", "topics", "apply")[1]
        assert "Do that?" not in shardpost.typed("", "topics", "apply")[2]  # nothing to do


def test_programs_are_not_asked(tmp_path: Path) -> None:
    with memory_kafka(home=tmp_path, partitions=2, kafka_timeout=30) as kafka:
        shardpost = CommandLineHere(kafka.settings.environ())
        assert shardpost.typed("", "topics", "apply", "--yes")[0] == 0
        assert "created" not in shardpost("topics", "apply")


@pytest.fixture
def rebuilt(kafka: MemoryKafka) -> MemoryKafka:
    """Give tables, and a rebuild of them that has begun."""
    from shardpost.holders.model.view_tables import POSITIONS, SHARE_HOLDERS

    made = {
        table.name: overwrite(kafka.settings, table, []) for table in (POSITIONS, SHARE_HOLDERS)
    }
    snapshots.commit(installed(kafka.settings).tables, snapshot(1, made))
    begun(
        installed(kafka.settings),
        RebuildRequest(Action.START, "me", tables=("positions", "share_holders")),
    )
    return kafka


@pytest.mark.parametrize("answers", ["\nn\n", "\n\n"])
def test_a_rebuild_is_dropped_only_if_a_person_says_so(
    rebuilt: MemoryKafka, shardpost: CommandLineHere, answers: str
) -> None:
    code, out, err = shardpost.typed(answers, "rebuild", "drop")
    assert (code, out) == (1, "")
    assert "rebuild 2 is building: country US, from history, positions.2" in err
    assert err.endswith(f"{NO}\n")
    assert registry.require_current(installed(rebuilt.settings).tables).state is State.BUILDING


@pytest.mark.parametrize(
    ("answers", "given", "reason"),
    [
        ("a typo\ny\n", [], "a typo"),
        ("y\n", ["--why", "given"], "given"),
        ("", ["--yes"], ""),
    ],
)
def test_the_reason_is_asked_for_where_it_is_not_given(
    rebuilt: MemoryKafka, shardpost: CommandLineHere, answers: str, given: list[str], reason: str
) -> None:
    code, out, _ = shardpost.typed(answers, "rebuild", "drop", *given)
    assert (code, "rebuild 2 is dropped" in out) == (0, True)
    [(decision, _)] = decisions.list_all(rebuilt.settings)
    assert decision.why == reason


def test_a_needed_reason_is_asked_for_until_there_is_one(shardpost: CommandLineHere) -> None:
    code, out, err = shardpost.typed("\n\nit asked\nn\n", "erase", "c1")
    assert (code, out, err.count("Why: ")) == (1, "", 3)
    assert "would be erased from audiences" in err
    assert err.endswith(f"Erase c1? [y/N]: {NO}\n")
    assert shardpost.typed("", "erase", "c1", "--yes")[::2] == (2, missing_why("erase"))
    assert shardpost.answer("erase", "c1")[::2] == (2, missing_why("erase"))
    assert shardpost.typed("", "erase", "c1", "--dry-run")[0] == 0


def missing_why(command: str) -> str:
    usage = f"Usage: shardpost {command} [OPTIONS] CLIENT\n"
    said = "Missing option '--why'. Reason, which is recorded. A terminal prompts for it."
    return f"{usage}Try 'shardpost {command} --help' for help.\n\nError: {said}\n"
