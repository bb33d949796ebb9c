"""Ending with the parent process, also where that one is killed and cannot pass a signal on."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def terminate_with_parent() -> None:
    """Have the kernel send this process a SIGTERM when its parent ends (Linux, prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
