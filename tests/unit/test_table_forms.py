"""Tables of another release are refused by name, by commands, jobs and the doctor."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.delta import snapshots, table_log
from shardpost.delta.query import FORM, FORM_PROPERTY, TableFormError, open_table, path_of
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.table import Table
from shardpost.errors import BAD_USAGE
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.results import result_if_nothing_new
from shardpost.settings import Settings
from shardpost.watch.table_checks import check_rebuild, check_snapshot
from tests.support.command_line import CommandLine
from tests.support.committed_snapshot import commit_snapshot
from tests.support.memory_kafka import MemoryKafka

NOW = datetime(2026, 11, 23, tzinfo=UTC)
BEFORE = "was made before 0.2.0, the first release"
NEWER = f"was made by a newer release of Shardpost: it has form {FORM + 1}"


def give_form(settings: Settings, table: Table, form: int | None) -> None:
    """Change the form of a table in the first entry of its log; None is that of no release."""
    log = Path(path_of(settings, table), "_delta_log", f"{0:020d}.json")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        if "metaData" in entry:
            del entry["metaData"]["configuration"][FORM_PROPERTY]
            if form is not None:
                entry["metaData"]["configuration"][FORM_PROPERTY] = str(form)
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))


@pytest.mark.parametrize(("form", "said"), [(None, BEFORE), (0, BEFORE), (FORM + 1, NEWER)])
def test_tables_of_another_release_are_refused(
    kafka: MemoryKafka, shardpost: CommandLine, form: int | None, said: str
) -> None:
    commit_snapshot(kafka, client1=["1"])
    give_form(kafka.settings, SNAPSHOTS, form)
    with pytest.raises(TableFormError, match=f"table snapshots in .* {said}"):
        snapshots.newest(kafka.settings)
    with pytest.raises(TableFormError, match=said):
        snapshots.list_all(kafka.settings)
    with pytest.raises(TableFormError, match=said):
        table_log.opened(kafka.settings, SNAPSHOTS)
    [finding] = check_snapshot(kafka.settings, NOW)
    assert (finding.check, finding.state) == ("tables", "error")
    assert said in finding.found
    assert [*check_rebuild(kafka.settings, NOW)] == []
    with pytest.raises(TableFormError, match=said):  # `compact`, and its job
        result_if_nothing_new(kafka.settings, COMPACT_POSITIONS.name)
    for command in (["holders"], ["snapshots"], ["tables", "list"]):
        assert said in shardpost.refused(*command, code=BAD_USAGE)


def test_a_table_that_no_snapshot_names_is_refused_too(settings: Settings) -> None:
    table_log.create(settings, DEAD_LETTERS, 7)
    give_form(settings, DEAD_LETTERS, None)
    with pytest.raises(TableFormError, match=f"table dead_letters in .* {BEFORE}"):
        table_log.opened(settings, DEAD_LETTERS)


def test_a_table_keeps_its_form_when_it_is_restored(settings: Settings) -> None:
    table_log.create(settings, DEAD_LETTERS, 7)
    version = table_log.commit(settings, DEAD_LETTERS, 0, (), (), {"read": 1})
    table_log.restore(settings, DEAD_LETTERS, 0)
    found = open_table(settings, DEAD_LETTERS).metadata().configuration
    assert found[FORM_PROPERTY] == str(FORM)
    assert DeltaTable(path_of(settings, DEAD_LETTERS)).version() == version + 1
