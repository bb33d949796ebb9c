"""How every process of ours logs: to standard error, one line each, with the time.

The named steps of a job are in its log: where a run is, and between which two it can be broken
off.
"""

import logging
import sys

log = logging.getLogger(__name__)


def step(name: str, *, level: int = logging.INFO) -> None:
    """Log that the named step begins; the tests of crashes pause and kill there."""
    log.log(level, "step: %s", name)


QUIETER = ("httpx", "py4j")  # they log every request, every connection


def configure_logging() -> None:
    """Set logging up, once in a process."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    for name in QUIETER:
        logging.getLogger(name).setLevel(logging.WARNING)
