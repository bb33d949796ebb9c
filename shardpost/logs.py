"""What a process of ours says while it works: its log, and a last line on the terminal.

Every process logs to standard error, one line each, with the time. The named steps of a job are in
its log: where a run is, and between which two it can be broken off.

The last line says what a command does now, and for how long it has been running. It is there only
where standard error is a terminal, and only of a command that takes long: logs, pipes and files
have nothing of it. All that is written erases it first, so that nothing is wrapped, coloured or
reordered, as what passes through the status lines of rich or tqdm would be.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TextIO, cast

from shardpost.errors import harmless, one_line
from shardpost.wording import duration_text

log = logging.getLogger(__name__)


def step(name: str, *, level: int = logging.INFO) -> None:
    """Log that the named step begins; the tests of crashes pause and kill there."""
    log.log(level, "step: %s", name)


def configure_logging() -> None:
    """Set logging up, once in a process."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    for name in ("httpx", "py4j"):  # they log every request, every connection
        logging.getLogger(name).setLevel(logging.WARNING)


AFTER_SECONDS, EVERY_SECONDS = 1.5, 0.5
COLUMNS = 80  # of a terminal that does not say
LONGEST_NOTED = 2000  # bytes of what is written at once
# What our own lines say is being done: a step, Spark's start, or a line that ends with an ellipsis.
_STARTS = re.compile(
    r" INFO (?:step: (?P<step>.+)|\w+: (?P<spark>starting Spark)\b.*)|(?P<told>.+) …"
)
_LOG_LINE = re.compile(r" (?:INFO|WARNING|ERROR) ")
_ERASE = b"\r\x1b[K"


class ProgressLine:
    """The line at the end of a terminal, which nobody but its thread draws."""

    def __init__(self, terminal: int, title: str) -> None:
        self._terminal, self._title, self._doing = terminal, title, ""
        self._began = time.monotonic()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._is_drawn = self._is_held = False

    def draw_until_ended(self) -> None:
        """Draw it again and again, once the command has taken some time."""
        wait = AFTER_SECONDS
        while not self._ended.wait(wait):
            with self._lock, suppress(OSError):  # a terminal may be closed under us
                if not (self._is_held or self._ended.is_set() or self._is_in_background()):
                    os.write(self._terminal, b"\r" + self._text().encode() + b"\x1b[K")
                    self._is_drawn = True
            wait = EVERY_SECONDS

    @contextmanager
    def interrupted(self, written: bytes, *, is_last: bool = False) -> Iterator[None]:
        """Erase it while something is written; after that it is below, if a line was completed.

        Whoever reads an uncompleted one, such as a question, is not disturbed. After the last it
        does not come back.
        """
        with self._lock:
            self._erase()
            self._note(written[-LONGEST_NOTED:])
            if is_last:
                self._ended.set()
            yield

    def resume(self) -> None:
        """Go on below a line that was completed by who typed an answer."""
        self._is_held = False

    def end(self) -> None:
        """Erase it for good."""
        with self._lock:
            self._ended.set()
            self._erase()

    def _erase(self) -> None:
        if self._is_drawn:
            with suppress(OSError):
                os.write(self._terminal, _ERASE)
            self._is_drawn = False

    def _note(self, written: bytes) -> None:
        if self._ended.is_set():
            return
        if written:
            self._is_held = not written.endswith(b"\n")
        for line in written.decode(errors="replace").splitlines():
            if found := _STARTS.search(line):
                self._doing = one_line(found["step"] or found["spark"] or found["told"].strip())
            elif _LOG_LINE.search(line):
                self._doing = ""

    def _text(self) -> str:
        columns = COLUMNS
        with suppress(OSError):
            columns = os.get_terminal_size(self._terminal).columns or COLUMNS
        doing = f"{self._title}: {self._doing}" if self._doing else self._title
        since = f", {duration_text(time.monotonic() - self._began)}"
        return doing[: max(0, columns - len(since) - 1)] + since

    def _is_in_background(self) -> bool:
        """Tell whether the shell has given the terminal to others."""
        with suppress(OSError):
            return os.tcgetpgrp(self._terminal) != os.getpgrp()
        return False


class _ErasingStream:
    """Standard output or standard error, of which each write erases the line first."""

    def __init__(self, line: ProgressLine, stream: TextIO) -> None:
        self.progress_line, self._stream = line, stream
        # Below what another program makes of the result, such as a pager, no line has a place.
        self._is_last = not stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Erase the line, and write; what could steer the terminal becomes U+FFFD."""
        text = text if self._is_last else harmless(text)
        written = text.encode(errors="replace")
        with self.progress_line.interrupted(written, is_last=self._is_last):
            count = self._stream.write(text)
            self._stream.flush()
        return count


def current_line() -> ProgressLine | None:
    """Return the line of this process, if it shows one."""
    return sys.stderr.progress_line if isinstance(sys.stderr, _ErasingStream) else None


@contextmanager
def line_interrupted(written: bytes) -> Iterator[None]:
    """Erase the line, if there is one, while bytes are written to standard error itself."""
    line = current_line()
    with line.interrupted(written) if line else nullcontext():
        yield


def resume_line() -> None:
    """Let the line, if there is one, go on after a question was answered."""
    if line := current_line():
        line.resume()


@contextmanager
def line_shown(title: str) -> Iterator[None]:
    """Show the line while a command runs, if standard error is a terminal."""
    before = sys.stdout, sys.stderr
    if None in before or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    line = ProgressLine(sys.stderr.fileno(), title)
    sys.stdout, sys.stderr = (cast("TextIO", _ErasingStream(line, stream)) for stream in before)
    thread = threading.Thread(target=line.draw_until_ended, daemon=True)
    thread.start()
    try:
        yield
    finally:
        line.end()
        thread.join()
        sys.stdout, sys.stderr = before
