"""import_positions: what its params become, and when its run fails."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest
from airflow.sdk.io.store import _STORE_CACHE, attach
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from obstore.fsspec import FsspecStore

from shardpost.errors import ShardpostError, UsageError
from shardpost.imports.model.source import FileSource, Format, jdbc_source
from tests.dags.conftest import StandIn, states
from tests.support.object_store import BUCKET, ObjectStore, object_store

PLAN = {
    "import_id": "a1",
    "source": "list.csv",
    "into": "positions",
    "up_to": "3:5f0c1d9e4b7a2c38",
    "rows": 3,
    "new": 1,
    "changed": 0,
    "closed": 1,
    "equal": 1,
    "left": 0,
    "rejected": [],
    "rejected_rows": 0,
    "ignored": [],
    "unknown_exchanges": {},
    "watermark": None,
    "samples": {"new": ["7"]},
    "applied": False,
    "applied_before": None,
    "written": 0,
    "refused": None,
}


def test_a_plan_is_logged_and_ends_well(dag: Any, stand_in: StandIn, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.touch()
    calls = stand_in({"": [0, PLAN]})
    run = dag.test(run_conf={"source": str(path)})
    assert states(run) == {"import": "success", "report": "success"}
    [request] = map(json.loads, calls.read_text().splitlines())
    assert request.pop("who")
    assert request == {"source": {"location": str(path), "format": "csv"}}


def test_all_params_reach_the_job(dag: Any, stand_in: StandIn) -> None:
    calls = stand_in({"": [0, PLAN | {"applied": True, "written": 2}]})
    conf = {"source": "jdbc:postgresql://db/x", "query": "SELECT 1", "apply": True}
    conf |= {"max_closed": "20%", "import_id": "monday", "why": "a new feed", "table": ""}
    conf["up_to"] = "3:5f0c1d9e4b7a2c38"
    run = dag.test(run_conf=conf)
    assert states(run) == {"import": "success", "report": "success"}
    [request] = map(json.loads, calls.read_text().splitlines())
    assert request.pop("who")
    assert request == {
        "source": {"url": "jdbc:postgresql://db/x", "query": "SELECT 1"},
        "is_applied": True,
        "import_id": "monday",
        "max_closed": 0.2,
        "why": "a new feed",
        "up_to": "3:5f0c1d9e4b7a2c38",
    }


def test_a_list_of_clients_by_a_profile_and_an_increment_reach_the_job(
    dag: Any, stand_in: StandIn, task_environment: Path, tmp_path: Path
) -> None:
    path, profiles = tmp_path / "list.csv", task_environment / "profiles"
    path.touch()
    profiles.mkdir(exist_ok=True)
    (profiles / "crm.yml").write_text('delimiter: ";"\ncolumns:\n  Client: Kunde\n')
    calls = stand_in({"": [0, PLAN]})
    conf = {"source": str(path), "into": "clients", "profile": "crm", "watermark": "changed"}
    assert states(dag.test(run_conf=conf)) == {"import": "success", "report": "success"}
    [request] = map(json.loads, calls.read_text().splitlines())
    assert request.pop("who")
    own = {"delimiter": ";", "columns": {"Client": "Kunde"}}
    assert request == {
        "source": {"location": str(path), "format": "csv", "profile": own},
        "into": "clients",
        "watermark": "changed",
    }


def test_a_refused_import_fails_the_run_and_is_not_repeated(
    dag: Any, stand_in: StandIn, tmp_path: Path
) -> None:
    path = tmp_path / "list.csv"
    path.touch()
    refused = PLAN | {"refused": "2 of 3 open positions would close (66.67%), more than 5%"}
    calls = stand_in({"": [3, refused]})
    run = dag.test(run_conf={"source": str(path), "apply": True})
    assert states(run) == {"import": "success", "report": "failed"}
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"source": "/no/such/list.csv"},
        {"source": "jdbc:postgresql://db/x"},
        {"source": "jdbc:postgresql://db/x", "table": "t", "max_closed": "20"},
        {"source": "jdbc:postgresql://db/x", "table": "t", "up_to": "yesterday"},
        {"source": "jdbc:postgresql://db/x", "table": "t", "aply": True},
        {"source": "jdbc:postgresql://db/x", "table": "t", "profile": "none"},
    ],
)
def test_params_that_could_only_be_refused_start_nothing(
    dag: Any, stand_in: StandIn, conf: dict[str, object]
) -> None:
    calls = stand_in({"": [0, PLAN]})
    run = dag.test(run_conf=conf)
    assert states(run)["import"] == "failed"
    assert not calls.exists()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """Run an object store, which Airflow reaches by the connection `trading_s3`."""
    with object_store(tmp_path / "store") as running:
        environ = running.environ
        config: Any = {
            name.removeprefix("AWS_").lower(): text
            for name, text in environ.items()
            if name != "AWS_ALLOW_HTTP"
        }
        fs = FsspecStore("s3", config=config, client_options={"allow_http": True})
        attach("s3", "trading_s3", fs=fs)
        yield running
        _STORE_CACHE.clear()


def put(store: ObjectStore, name: str, text: str) -> None:
    path = store.folder / BUCKET / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    notes = tmp_path / "notes.json"
    monkeypatch.setenv("STAND_IN_NOTES", str(notes))
    return notes


def test_a_list_on_an_object_store_is_copied_for_the_job_and_named_as_it_was_given(
    dag: Any, stand_in: StandIn, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notes, calls = noted(monkeypatch, tmp_path), stand_in({"": [0, PLAN]})
    put(store, "lists/book.csv", "PositionId\n1\n")
    url = f"s3://trading_s3@{BUCKET}/lists/book.csv"
    run = dag.test(run_conf={"source": url})
    assert states(run) == {"import": "success", "report": "success"}
    assert json.loads(notes.read_text())[1] == "PositionId\n1\n"
    source = json.loads(calls.read_text())["source"]
    assert source == {"location": source["location"], "format": "csv", "name": url}
    assert not Path(source["location"]).exists()
    assert str(FileSource(source["location"], Format.CSV, url)) == url


def test_a_folder_on_an_object_store_is_a_list_and_one_that_changes_meanwhile_is_none(
    store: ObjectStore,
) -> None:
    import shardpost_import_sources as module

    for number in (1, 2):
        put(store, f"lists/{number}.csv", f"PositionId\n{number}\n")
    with module.copy_of(f"s3://trading_s3@{BUCKET}/lists") as copy:
        texts = {one.name: one.read_text() for one in Path(copy).iterdir()}
    assert texts == {"1.csv": "PositionId\n1\n", "2.csv": "PositionId\n2\n"}
    stamps, own = [], module._stamps

    def changing(there: Any) -> Any:
        stamps.append(own(there))
        put(store, "lists/2.csv", "PositionId\n333\n")
        return stamps[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_stamps", changing)
        with (
            pytest.raises(ShardpostError, match="changed while it was copied"),
            module.copy_of(f"s3://trading_s3@{BUCKET}/lists"),
        ):
            pass
    assert len(stamps) == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (f"s3://trading_s3@{BUCKET}/none.csv", "cannot be read: no such file or folder"),
        ("s3://key:hush@bucket/list.csv", "expected the id of a connection before @"),
        ("gs://bucket/list.csv", "gs://bucket/list.csv: .*, and the provider of that scheme"),
        ("s3://unknown@bucket/list.csv", "s3://unknown@bucket/list.csv: .*SCHEME://CONNECTION@"),
    ],
)
def test_what_is_no_list_on_an_object_store_is_refused(
    store: ObjectStore, source: str, said: str
) -> None:
    import shardpost_import_sources as module

    with pytest.raises(ShardpostError, match=said) as error, module.copy_of(source):
        pass
    assert "hush" not in str(error.value)


def test_a_connection_without_a_jdbc_url_starts_nothing(
    dag: Any, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OF_MAIL", "smtp://mail.example")
    calls = stand_in({"": [0, PLAN]})
    assert states(dag.test(run_conf={"source": "airflow:of_mail"}))["import"] == "failed"
    assert not calls.exists()
    said = "connection of_mail: expected one of type postgres or mysql, or jdbc"
    assert [line for line in caplog.messages if line.startswith(f"failed: {said}")]


def test_a_connection_that_is_not_there_is_refused() -> None:
    import shardpost_import_sources as module

    with pytest.raises(UsageError, match="airflow:booke: expected an existing connection"):
        module.database_of("booke")


@pytest.mark.parametrize(
    "connection",
    [
        {"conn_type": "postgres", "host": "db.example", "port": 5433, "schema": "book"},
        {"conn_type": "jdbc", "host": "jdbc:postgresql://db.example:5433/book"},
    ],
)
def test_a_database_is_reached_by_a_connection_whose_login_only_the_environment_has(
    dag: Any,
    stand_in: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    connection: dict[str, object],
) -> None:
    notes, calls = noted(monkeypatch, tmp_path), stand_in({"": [0, PLAN]})
    login = {"login": "ann", "password": "hush-of-the-db"}
    monkeypatch.setenv("AIRFLOW_CONN_BOOK", json.dumps(connection | login))
    with caplog.at_level("DEBUG"):
        run = dag.test(run_conf={"source": "airflow:book", "table": "positions"})
    assert states(run) == {"import": "success", "report": "success"}
    url = "jdbc:postgresql://db.example:5433/book"
    assert json.loads(calls.read_text())["source"] == {"url": url, "table": "positions"}
    environ = json.loads(notes.read_text())[0]
    assert environ["SHARDPOST_IMPORT_JDBC_USER"] == "ann"
    assert environ["SHARDPOST_IMPORT_JDBC_PASSWORD"] == "hush-of-the-db"  # noqa: S105
    assert "hush-of-the-db" not in calls.read_text() + caplog.text


TLS = {"sslmode": "verify-full", "sslrootcert": "/ca.pem", "options": "-c search_path=live"}


@pytest.mark.parametrize(
    ("kind", "extra", "expected"),
    [
        (
            "postgres",
            TLS | {"cursor": "dictcursor"},
            "/trading?sslmode=verify-full&sslrootcert=%2Fca.pem&options=-c%20search_path%3Dlive",
        ),
        (
            "postgres",
            TLS | {"sslmode": "require", "connect_timeout": 5},
            "/trading?sslmode=verify-ca&sslrootcert=%2Fca.pem&options=-c%20search_path%3Dlive"
            "&connectTimeout=5",
        ),
        ("mysql", {"ssl_mode": "VERIFY_CA"}, "/trading?sslMode=VERIFY_CA"),
    ],
)
def test_the_extra_of_a_connection_is_part_of_the_url(
    monkeypatch: pytest.MonkeyPatch, kind: str, extra: dict[str, object], expected: str
) -> None:
    import shardpost_import_sources as module

    connection = {"conn_type": kind, "host": "db", "schema": "trading", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_BOOK", json.dumps(connection))
    url, _ = module.database_of("book")
    assert url.partition("//db")[2] == expected
    assert jdbc_source(url, "positions", None).url == url


@pytest.mark.parametrize(
    ("kind", "extra", "named"),
    [
        ("postgres", {"service": "live"}, "extra service: expected only sslmode, sslrootcert"),
        ("postgres", {"sslmode": {"a": 1}}, "extra sslmode: expected only"),
        ("postgres", {"sslpassword": "hush"}, "extra sslpassword: .* type jdbc, whose host"),
        ("mysql", {"charset": "utf8"}, "extra charset: expected only ssl_mode"),
        ("jdbc", {"sslmode": "require"}, "extra sslmode: expected none"),
        ("postgres", ["sslmode"], "expected a JSON object as its extra"),
    ],
)
def test_an_extra_that_the_driver_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: str, extra: object, named: str
) -> None:
    import shardpost_import_sources as module

    host = "jdbc:postgresql://db/trading" if kind == "jdbc" else "db"
    own = {"driver_class": "org.postgresql.Driver"} if kind == "jdbc" else {}
    given = own | extra if isinstance(extra, dict) else extra
    connection = {"conn_type": kind, "host": host, "extra": json.dumps(given)}
    monkeypatch.setenv("AIRFLOW_CONN_BOOK", json.dumps(connection))
    with pytest.raises(UsageError, match=f"connection book: .*{named}") as refused:
        module.database_of("book")
    assert "hush" not in str(refused.value)


class NotingReads(MemoryFileSystem):  # type: ignore[misc]
    """Notes when a file was read, as the servers of SFTP do."""

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        """Return a time that is another one each time."""
        return {**super().info(path, **more), "time": next(CLOCK)}


CLOCK = count()


def test_a_list_that_was_only_read_meanwhile_has_not_changed() -> None:
    import shardpost_import_sources as module

    files = NotingReads(skip_instance_cache=True)
    attach("sftp", "broker", fs=files)
    files.pipe_file("/lists/1.csv", b"PositionId")
    with module.copy_of("sftp://broker@/lists/1.csv") as copy:
        assert Path(copy).read_text() == "PositionId"
    files.rm("/lists", recursive=True)


def test_a_list_whose_copy_would_leave_its_folder_is_refused(tmp_path: Path) -> None:
    """Keys of an object store may have such parts, and paths may not."""
    import shardpost_import_sources as module

    memory = fsspec.filesystem("memory", global_store=False, skip_instance_cache=True)
    attach("s3", "memory", fs=memory)
    for name in ("1.csv", f"{'../' * 20}{tmp_path}/outside.csv"):
        memory.pipe_file(f"/lists/{name}", b"PositionId")
    with (
        pytest.raises(UsageError, match="expected names without"),
        module.copy_of("s3://memory@lists"),
    ):
        pass
    assert not [*tmp_path.iterdir()]
