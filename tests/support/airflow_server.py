"""An Airflow that a test plays: the few answers of its REST API that a dispatch asks for."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from shardpost.embedded import daemons


class AirflowServer:
    """DAGs {name: paused}, and the runs that were started: {(dag, run id): form}."""

    def __init__(self, dags: dict[str, bool]) -> None:
        self.port = daemons.choose_port()
        self.dags, self.runs = dags, dict[tuple[str, str], dict[str, Any]]()
        self.refuses: str | None = None  # why params are refused
        self.breaks = False  # answers 500
        self.lock = threading.Lock()
        self.started: list[str] = []

    def environ(self) -> dict[str, str]:
        """Return the settings that make this the Airflow of a dispatch."""
        url = f"http://127.0.0.1:{self.port}"
        return {"airflow_url": url, "airflow_user": "admin", "airflow_password": "secret"}

    def end(self, run: str, state: str = "success") -> None:
        """Let a run end now."""
        for (_, name), form in self.runs.items():
            if name == run:
                form |= {"state": state, "end_date": datetime.now(UTC).isoformat()}

    def end_all(self) -> None:
        for _, name in list(self.runs):
            self.end(name)

    def delete(self, run: str) -> None:
        with self.lock:
            self.runs = {at: form for at, form in self.runs.items() if at[1] != run}

    def answer(self, method: str, path: str, form: dict[str, Any]) -> tuple[int, Any]:
        """Return the answer to one question, as Airflow 3.3 gives it."""
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["auth", "token"]:
                return (201, {"access_token": "t"}) if form["username"] == "admin" else (401, {})
            case ["api", "v2", "dags", dag, *_] if dag not in self.dags:
                return 404, {"detail": f"The Dag with ID: `{dag}` was not found"}
            case ["api", "v2", "dags", dag]:
                return 200, {"is_paused": self.dags[dag], "is_stale": False}
            case ["api", "v2", "dags", dag, "dagRuns", run]:
                found = self.runs.get((dag, run))
                return (200, found) if found else (404, {"detail": "not found"})
            case ["api", "v2", "dags", dag, "dagRuns"] if method == "POST":
                return self._start(dag, form)
        raise AssertionError(f"the test's Airflow knows no {method} {path}")

    def _start(self, dag: str, form: dict[str, Any]) -> tuple[int, Any]:
        with self.lock:
            run = form["dag_run_id"]
            if self.breaks:
                return 500, {"detail": "database is locked"}
            if self.refuses:
                return 400, {"detail": self.refuses}
            if (dag, run) in self.runs:
                return 409, {"detail": "Unique constraint violation"}
            fresh = {"state": "queued", "end_date": None, "start_date": None, "conf": form["conf"]}
            self.runs[dag, run] = fresh
            self.started.append(run)
            return 200, fresh


@contextmanager
def airflow_server(**dags: bool) -> Iterator[AirflowServer]:
    """Give an Airflow with these DAGs; the value says whether one is paused."""
    played = AirflowServer(dags)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # an answer goes out whole

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            form = json.loads(self.rfile.read(length) or b"{}")
            code, said = played.answer(self.command, self.path, form)
            body = json.dumps(said).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _do  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", played.port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
