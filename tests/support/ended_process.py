"""A process that has ended, as it named itself while it ran."""

import subprocess
import sys

from shardpost.locks.process_identity import ProcessIdentity

NAMES_ITSELF = """
from shardpost.locks.process_identity import ProcessIdentity
own = ProcessIdentity.own()
print(own.machine, own.pid, own.start, sep="\\n")
"""


def ended_process() -> ProcessIdentity:
    """Return one that was on this machine, and was reaped."""
    command = [sys.executable, "-c", NAMES_ITSELF]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    machine, pid, start = said.splitlines()
    return ProcessIdentity(machine, int(pid), start)
