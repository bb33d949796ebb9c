"""The named steps of a job, in its log.

Where a run is, and between which two it can be broken off.
"""

import logging

log = logging.getLogger(__name__)


def step(name: str, *, level: int = logging.INFO) -> None:
    """Log that the named step begins; the tests of crashes pause and kill there."""
    log.log(level, "step: %s", name)
