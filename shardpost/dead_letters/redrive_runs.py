"""A redrive or discard that goes on by itself, in a thread of the process that began it.

Its state is in a shared file, which every process reads: how far it is, what was refused, and how
it ended. It ends with its process; run again, it does the rest. Only one runs at a time, and the
file is of the last one.
"""

import json
import logging
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from shardpost.dead_letters.redrive import Redrive, RedriveResult
from shardpost.dead_letters.redrive_plan import carry_out, plan_redrive
from shardpost.errors import ShardpostError
from shardpost.locks.locks import exclusive
from shardpost.locks.shared_files import Files, SharedFile
from shardpost.wording import json_text

log = logging.getLogger(__name__)

LAST, STOP = "redrives/last.json", "redrives/stop"
# How often a run says how far it is, and looks whether it is to stop; after so long without a
# word its process is gone.
TICK_SECONDS, STORE_TICK_SECONDS = 1.0, 5.0
SILENT = timedelta(seconds=30)


class RunState(StrEnum):
    """How far a run is, or how it ended."""

    PLANNING = "planning"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    # Its process ended without a word.
    GONE = "gone"


@dataclass
class RedriveRun:
    """A run: what was asked for, by whom and why, and how far it is."""

    id: str
    decision: str
    by: str
    why: str
    began: str
    selection: dict[str, Any]
    state: str = RunState.PLANNING
    planned: int | None = None
    done: int = 0
    refused: int = 0
    not_shown: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)
    error: str | None = None
    seen: str = ""

    @property
    def is_going(self) -> bool:
        """Tell whether it goes on."""
        return self.state in (RunState.PLANNING, RunState.RUNNING)

    @property
    def began_at(self) -> datetime:
        """When it was begun."""
        return datetime.fromisoformat(self.began)


def last_run(files: Files, now: datetime) -> RedriveRun | None:
    """Return the last run; None if there was none, or its file cannot be read."""
    try:
        found = RedriveRun(**json.loads(SharedFile(files, LAST).read() or ""))
        is_silent = now - datetime.fromisoformat(found.seen) > SILENT
    except (ValueError, TypeError):
        return None
    if found.is_going and is_silent:
        found.state = RunState.GONE
    return found


def ask_to_stop(files: Files, run_id: str) -> None:
    """Have a run stop after the batch that it is writing."""
    SharedFile(files, STOP).write(run_id)


def start(redrive: Redrive, selection: dict[str, Any], wait: float) -> RedriveRun:
    """Begin a run and wait so many seconds for its end; return it as it is then.

    `selection` is what was asked for, as text. LockedError while another one goes on.
    """
    request, name = redrive.request, uuid.uuid4().hex
    asked = (str(request.kind), request.who, request.why, request.now.isoformat(), selection)
    runner = _Runner(redrive, RedriveRun(name, *asked))
    thread = threading.Thread(target=runner.work, name=f"redrive {runner.run.id}", daemon=True)
    thread.start()
    runner.is_begun.wait()
    thread.join(wait)
    if runner.refusal is not None:
        raise runner.refusal
    return runner.run


@dataclass
class _Runner:
    """The thread of a run, and the one beside it that writes how far it is.

    `refusal` is what kept it from beginning.
    """

    redrive: Redrive
    run: RedriveRun
    is_begun: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    refusal: Exception | None = None
    result: RedriveResult = field(default_factory=RedriveResult)

    def work(self) -> None:
        """Plan it, carry it out, and write down how it ended."""
        try:
            with exclusive(self.redrive.installation.files, "redrive_run", "a redrive or discard"):
                self._write()
                self.is_begun.set()
                ticker = threading.Thread(target=self._tick, daemon=True)
                ticker.start()
                try:
                    self._carry_out()
                finally:
                    self.is_over.set()
                    ticker.join()
                    self._write()
        except Exception as error:
            if not isinstance(error, ShardpostError):
                log.exception("how far the redrive is could not be written")
            if self.is_begun.is_set():  # what it has done stands
                self.run.error = f"the end of the run could not be written down: {error}"
            else:
                self.refusal = error
        finally:
            self.is_begun.set()

    def _carry_out(self) -> None:
        run = self.run
        try:
            plan = plan_redrive(self.redrive)
            run.planned, run.not_shown = plan.count, plan.not_shown
            run.selection["up_to"] = str(plan.shown)
            run.refused, run.refusals = plan.refused_count, plan.refusals
            run.state = RunState.RUNNING
            carry_out(self.redrive, plan, self.result)
        except ShardpostError as error:
            run.state, run.error = RunState.FAILED, str(error)
        except Exception as error:
            log.exception("the redrive failed")
            run.state, run.error = RunState.FAILED, f"unexpected {type(error).__name__}: {error}"
        else:
            run.refused, run.refusals = plan.refused_count, plan.refusals
            run.state = RunState.STOPPED if self.result.stop.is_set() else RunState.DONE

    def _tick(self) -> None:
        installation = self.redrive.installation
        stop = SharedFile(installation.files, STOP)
        seconds = STORE_TICK_SECONDS if installation.tables.is_on_store else TICK_SECONDS
        while not self.is_over.wait(seconds):
            try:
                if stop.read() == self.run.id:
                    self.result.stop.set()
                self._write()
            except Exception:
                log.warning("how far the redrive is could not be written", exc_info=True)

    def _write(self) -> None:
        self.run.done, self.run.seen = self.result.count, datetime.now(UTC).isoformat()
        text = json_text(self.run)
        SharedFile(self.redrive.installation.files, LAST).write(text)
