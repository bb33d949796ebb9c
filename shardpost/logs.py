"""How every process of ours logs: to standard error, one line each, with the time."""

import logging
import sys

QUIETER = ("httpx", "py4j")  # they log every request, every connection


def configure() -> None:
    """Set logging up, once in a process."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    for name in QUIETER:
        logging.getLogger(name).setLevel(logging.WARNING)
