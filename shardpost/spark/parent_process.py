"""Ending with the process that started one, also where that is killed and can say nothing."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Have this process get a SIGTERM when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
