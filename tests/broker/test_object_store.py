"""Tables on a real object store: who wins, what is refused and within what time, files that go."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from shardpost.delta import object_store as module
from shardpost.delta import parquet_files, storage, stored_files, table_log
from shardpost.delta.query import rows, table_errors
from shardpost.delta.table import Table, columns
from shardpost.delta.table_log import VersionExistsError
from shardpost.errors import ShardpostError
from shardpost.settings import Settings, load
from shardpost.watch.machine_checks import check_disks, check_store
from shardpost.watch.table_checks import table_problem
from tests.conftest import environ
from tests.support.installed import installed
from tests.support.object_store import ObjectStore, store_environ

NOW = datetime.now(UTC)
TABLE = Table("grown", columns("n BIGINT"), folder="grown.2")


@pytest.fixture
def at(store: ObjectStore, tmp_path: Path) -> Settings:
    return Settings.model_validate({"home": tmp_path, **store.place()})


def test_of_many_who_put_a_key_that_is_absent_one_wins_and_the_others_are_told(
    at: Settings,
) -> None:
    claims = installed(at).tables.objects("_locks", "a name")
    contents = [f"writer {number}".encode() for number in range(8)]
    with ThreadPoolExecutor(len(contents)) as pool:
        won = [*pool.map(lambda one: claims.put_if_absent("1", one), contents)]
    assert won.count(True) == 1
    found = claims.get("1")
    assert found == contents[won.index(True)]
    assert claims.put_if_absent("1", found)  # the answer to which was lost
    claims.put("1", b"renewed")
    claims.put("2/x", b"")
    assert (claims.names(), claims.names("2")) == (["1", "2/x"], ["2/x"])
    claims.delete(["1", "2/x", "gone"])
    assert (claims.names(), claims.get("1")) == ([], None)


def test_of_two_who_commit_a_version_one_wins(at: Settings) -> None:
    storage.create(installed(at).tables, TABLE, 1)

    def commit(number: int) -> int | None:
        made = parquet_files.write(
            installed(at).tables, TABLE, pa.table({"n": [number]}), f"{number}.parquet"
        )
        try:
            return table_log.commit(installed(at).tables, TABLE, 0, [made])
        except VersionExistsError:
            return None

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(commit, range(4)), key=str) == [1, None, None, None]
    assert len(rows(installed(at).tables, "SELECT * FROM grown", {TABLE: None})) == 1


def test_files_are_written_listed_and_deleted_without_anything_left(
    at: Settings, store: ObjectStore
) -> None:
    storage.create(installed(at).tables, TABLE, 1)
    names = [f"0000000{number}-x/{number}.parquet" for number in range(3)]
    made = [
        parquet_files.write(installed(at).tables, TABLE, pa.table({"n": [1, 2]}), name)
        for name in names
    ]
    table_log.commit(installed(at).tables, TABLE, 0, made)
    copied = parquet_files.copy(installed(at).tables, TABLE, names, TABLE, "00000009-y")
    assert [action.path for action in copied] == [f"00000009-y/copy-0000{n}.parquet" for n in "012"]
    assert [action.size for action in copied] == [action.size for action in made]
    listed = stored_files.data_files(
        installed(at).tables, TABLE, lambda path: path.startswith("00000009")
    )
    assert sorted(file.path for file in listed) == names
    parquet_files.delete(
        installed(at).tables, TABLE, ["00000009-y/copy-00000.parquet", "gone.parquet"]
    )
    stored_files.remove(installed(at).tables, TABLE, [names[0], "gone.parquet"])
    left = [file.path for file in stored_files.stored_files(installed(at).tables, TABLE)]
    assert len(left) == 6  # with the two commits
    stored_files.delete_folder(installed(at).tables, TABLE, "00000009-y")
    stored_files.remove_all(installed(at).tables, TABLE)
    assert not stored_files.has_files(installed(at).tables, TABLE)
    prefix = at.tables_root.rpartition("/")[2]
    assert [path for path in store.paths() if path.startswith(prefix)] == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"AWS_ACCESS_KEY_ID": "another"}, "it does not know AWS_ACCESS_KEY_ID"),
        ({"AWS_SECRET_ACCESS_KEY": "hush"}, "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS"),
        ({"SHARDPOST_TABLES": "s3://another/tables"}, "bucket another: it has no such bucket"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "does not answer: check that it is up"),
        ({"AWS_ENDPOINT_URL": "http://nowhere.invalid"}, "does not answer: check that it is up"),
    ],
)
def test_what_a_store_refuses_is_one_line_without_keys_and_at_once(
    store: ObjectStore, given: dict[str, str], said: str
) -> None:
    at = load({"SHARDPOST_TABLES": "s3://tables/x", **store.environ, **given})
    began = time.monotonic()
    with pytest.raises(ShardpostError, match=said) as raised:
        storage.opened(installed(at).tables, TABLE)
    assert time.monotonic() - began < module.ANSWER_SECONDS
    line = str(raised.value)
    assert "\n" not in line
    assert not [secret for secret in ("hush", "of the tests alone") if secret in line]


def test_a_store_that_never_answers_is_said_to_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        at = load(environ(home=tmp_path, tables="s3://tables/x") | store_environ(port))
        began = time.monotonic()
        with pytest.raises(ShardpostError, match="it does not answer"):
            installed(at).tables.answering()
    assert time.monotonic() - began < 5


def test_a_store_that_goes_away_is_told_by_every_library_in_one_line(
    at: Settings, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create(installed(at).tables, TABLE, 1)
    monkeypatch.setattr(module, "RETRIES", 1)
    gone = at.model_copy(update={"store": store_environ(1)})
    monkeypatch.setattr(module, "require_answer", lambda _: None)
    for ask in (
        lambda: storage.opened(installed(gone).tables, TABLE),
        lambda: storage.exists(installed(gone).tables, TABLE),
        lambda: stored_files.stored_files(installed(gone).tables, TABLE),
        lambda: parquet_files.read(installed(gone).tables, TABLE, "a.parquet"),
        lambda: installed(gone).tables.objects().get("x"),
    ):
        with pytest.raises(ShardpostError, match="it does not answer") as raised, table_errors():
            ask()
        assert "\n" not in str(raised.value)


class _Heedless(BaseHTTPRequestHandler):
    """A store that looks first and puts then, as some stand-ins of S3 do: several writers win."""

    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        is_there = self.path in self.objects
        time.sleep(0.01)
        if not is_there:
            self.objects[self.path] = content
        self._answer(412 if is_there else 200)

    def do_GET(self) -> None:
        found = self.objects.get(self.path)
        if "list-type" in self.path:
            found = b"<ListBucketResult></ListBucketResult>"
        self._answer(200 if found is not None else 404, found or b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"<DeleteResult></DeleteResult>")

    def _answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 12:00:00 GMT")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        pass


@contextmanager
def heedless_store() -> Iterator[int]:
    handler = type("Own", (_Heedless,), {"objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_store_that_lets_several_writers_win_gets_no_tables(at: Settings, tmp_path: Path) -> None:
    installed(at).tables.require_conditional_put()
    with heedless_store() as port:
        bad = load(environ(home=tmp_path, tables="s3://tables/x") | store_environ(port))
        with pytest.raises(ShardpostError, match="it would lose commits silently"):
            storage.create(installed(bad).tables, TABLE, 1)
        [found] = check_store(installed(bad), NOW)
        assert (found.state, "would lose commits" in found.found) == ("error", True)


def test_doctor_asks_the_store_and_no_disk_and_finds_what_is_missing(
    at: Settings, store: ObjectStore
) -> None:
    assert [(one.check, one.state) for one in check_store(installed(at), NOW)] == [
        ("object store", "ok")
    ]
    assert [one.check for one in check_disks(installed(at), NOW)] == ["disk of home"]
    assert not [path for path in store.paths() if "_probes" in path]
    storage.create(installed(at).tables, TABLE, 1)
    made = parquet_files.write(
        installed(at).tables, TABLE, pa.table({"n": [1]}), "00000001-x/a.parquet"
    )
    table_log.commit(installed(at).tables, TABLE, 0, [made])
    assert table_problem(installed(at).tables, TABLE, 1) is None
    stored_files.delete(installed(at).tables, TABLE, ["00000001-x/a.parquet"])
    assert (
        table_problem(installed(at).tables, TABLE, 1)
        == f"{at.tables_root}/grown.2/00000001-x/a.parquet is missing"
    )
    with pytest.raises(ShardpostError, match="it was vacuumed, or removed by hand"):
        rows(installed(at).tables, "SELECT * FROM grown", {TABLE: 1})
