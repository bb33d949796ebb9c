"""A dispatch that stops itself (SIGSTOP) as a named step begins: `pausing_dispatch.py STEP`.

The dispatch is the real command; only a log handler is added, which the tests wait for and kill at.
"""

import logging
import sys

from shardpost.cli import run
from tests.support.pausing_job import Pause

if __name__ == "__main__":
    logger = logging.getLogger("shardpost.logs")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Pause(sys.argv[1]))
    sys.exit(run(["runs", "dispatch"]))
