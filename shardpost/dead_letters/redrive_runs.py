"""A redrive or discard in the background, in a thread of the process that started it.

Its state is in a file shared by all processes: progress, refusals and result. It ends with its
process; repeated, it does the rest. Only one runs at a time, and the file has the last one.
"""

import logging
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shardpost.dead_letters.redrive import Redrive, RedriveResult
from shardpost.dead_letters.redrive_plan import carry_out, plan_redrive
from shardpost.errors import ShardpostError, said
from shardpost.locks.locks import exclusive
from shardpost.locks.shared_files import Files, SharedFile
from shardpost.wording import json_text

log = logging.getLogger(__name__)

LAST, STOP = "redrives/last.json", "redrives/stop"
# How often a run writes its progress and checks whether to stop; after that long without progress
# its process is considered gone.
TICK_SECONDS, STORE_TICK_SECONDS = 1.0, 5.0
SILENT = timedelta(seconds=30)


class RunState(StrEnum):
    """The progress or result of a run."""

    PLANNING = "planning"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    # Its process ended without a result.
    GONE = "gone"


@dataclass
class RedriveRun:
    """A run: the request, by whom and why, and its progress."""

    id: str
    decision: str
    by: str
    why: str
    began: datetime
    selection: dict[str, Any]
    state: str = RunState.PLANNING
    planned: int | None = None
    done: int = 0
    refused: int = 0
    not_shown: int = 0
    refusals: list[dict[str, str]] = field(default_factory=list)
    error: str | None = None
    seen: datetime | None = None

    @property
    def is_going(self) -> bool:
        """Tell whether it goes on."""
        return self.state in (RunState.PLANNING, RunState.RUNNING)


_RUN = TypeAdapter(RedriveRun)


def last_run(files: Files, now: datetime) -> RedriveRun | None:
    """Return the last run, or None if there is none or its file is unreadable."""
    try:
        found = _RUN.validate_json(SharedFile(files, LAST).read() or "")
    except ValidationError:
        return None
    if found.is_going and found.seen and now - found.seen > SILENT:
        found.state = RunState.GONE
    return found


def ask_to_stop(files: Files, run_id: str) -> None:
    """Stop a run after its current batch."""
    SharedFile(files, STOP).write(run_id)


def start(redrive: Redrive, selection: dict[str, Any], wait: float) -> RedriveRun:
    """Start a run and wait that many seconds for its end; return its state then.

    `selection` is the request as text. Raises LockedError while another run is active.
    """
    request, name = redrive.request, uuid.uuid4().hex
    asked = (str(request.kind), request.who, request.why, request.now, selection)
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
    """The threads of a run and of its progress; `refusal` is what prevented its start."""

    redrive: Redrive
    run: RedriveRun
    is_begun: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    refusal: Exception | None = None
    result: RedriveResult = field(default_factory=RedriveResult)

    def work(self) -> None:
        """Plan it, carry it out, and record the result."""
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
                log.exception("the progress of the redrive could not be written")
            if self.is_begun.is_set():  # what it did remains done
                self.run.error = f"the result of the run could not be recorded: {error}"
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
        except Exception as error:
            if not isinstance(error, ShardpostError):
                log.exception("the redrive failed")
            run.state, run.error = RunState.FAILED, said(error)
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
                log.warning("the progress of the redrive could not be written", exc_info=True)

    def _write(self) -> None:
        self.run.done, self.run.seen = self.result.count, datetime.now(UTC)
        text = json_text(self.run)
        SharedFile(self.redrive.installation.files, LAST).write(text)
