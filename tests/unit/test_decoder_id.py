"""The id of the decoder changes with all that decides what a record becomes."""

import ast
import pkgutil
from pathlib import Path

import pytest

import shardpost.holders
from shardpost.holders.spark import history

HOLDERS = Path(shardpost.holders.__file__).parent
# What decoding imports that decides nothing of a row: the form of a table's columns, what people
# read of a wrong file, and how one is read.
MORE = ("kafka.registered_values", "kafka.schema_registry", "spark.driver")
VALUES = ("values.topic_names", "values.yaml_files")
OTHERS = {f"shardpost.{name}" for name in ("delta.table", "errors", "wording", *MORE, *VALUES)}


def imported(path: str) -> set[str]:
    """Return the modules of this project that a module imports, and those that these import."""
    tree = ast.parse((HOLDERS.parent / path).read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {
        f"{node.module}.{one.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    own = {name for name in names if name and name.startswith("shardpost.") and is_module(name)}
    within = {name for name in own if name.startswith("shardpost.holders.")}
    return own.union(*(imported(f"{relative(name)}.py") for name in within))


def is_module(name: str) -> bool:
    return (HOLDERS.parent.parent / f"{name.replace('.', '/')}.py").exists()


def relative(name: str) -> str:
    return name.removeprefix("shardpost.").replace(".", "/")


def test_it_is_of_all_modules_that_decode() -> None:
    decoding, translation, registered = (
        {f"holders/spark/{path}", *of(f"holders/spark/{path}")}
        for path in ("decoding.py", "translation.py", "registered.py")
    )
    assert decoding == {*history.MODULES}
    assert translation | registered == {*history.MODULES, *history.MODULES_OF_MAPPED}


def of(path: str) -> set[str]:
    return {f"{relative(name)}.py" for name in imported(path) - OTHERS}


# Whatever reads records of an input decodes them by `history.decode`: but for what only parses, and
# the import, which writes plain records and is refused where they are mapped.
DECODERS = {"spark/history.py", "spark/translation.py", "spark/held_positions.py"}


def test_records_are_decoded_in_one_place() -> None:
    found = {
        path
        for path in HOLDERS.parent.rglob("*.py")
        if "spark.decoding import" in path.read_text() and "import" not in path.parent.parent.name
    }
    assert found == {HOLDERS / path for path in DECODERS}


@pytest.mark.parametrize("changed", history.MODULES)
def test_it_changes_with_the_text_of_each(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = history.id_now()
    read = pkgutil.get_data

    def other(package: str, path: str) -> bytes | None:
        text = read(package, path)
        return text + b"#" if text and path == changed else text

    monkeypatch.setattr(pkgutil, "get_data", other)
    assert history.id_now() != before


def test_it_changes_with_spark_and_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = history.id_now()
    assert history.id_now() == before
    monkeypatch.setattr(history, "version", lambda _: "4.0.2")
    assert history.id_now() != before


def test_a_process_decodes_as_it_was_started_whatever_is_installed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = history.decoder_id(None)
    monkeypatch.setattr(pkgutil, "get_data", lambda *_: b"an update")
    assert history.id_now() != started
    assert history.decoder_id(None) == started
    assert history.decoder_with(history.id_now(), None) is None


def test_rows_of_two_decoders_are_of_none() -> None:
    own = history.decoder_id(None)
    assert history.decoder_with(own, None) == own
    assert history.decoder_with("another", None) is None
    assert history.decoder_with(None, None) is None
    assert history.decoder_with(own, "{}") is None
