"""The named steps of a job, in its log.

Where a run is, and between which two it can be broken off.
"""

import logging

log = logging.getLogger(__name__)


def step(name: str) -> None:
    """Say that the named step begins."""
    log.info("step: %s", name)
