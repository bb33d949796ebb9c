"""Groups of log lines: Airflow's UI shows what is between two marks as one line, closed.

An end without a beginning is nothing to the UI.
"""

import logging

# Open at most when a callback runs: one of ours, or `Pre Execute`, and in it `Post Execute`.
MOST_OPEN = 2


def open_group(log: logging.Logger, name: str) -> None:
    """Begin a group; the lines that follow are in it."""
    log.info("::group::%s", name)


def close_group(log: logging.Logger) -> None:
    """End the innermost group."""
    log.info("::endgroup::")


def close_all_groups(log: logging.Logger) -> None:
    """End every group that can be open when Airflow calls a callback of a task."""
    for _ in range(MOST_OPEN):
        close_group(log)
