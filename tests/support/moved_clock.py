"""A wall clock that is off: the variables of a process by which it is."""

from pathlib import Path


def moved(library: Path, seconds: int) -> dict[str, str]:
    """Return variables by which the library (`--clock-library`) moves the clock of a process."""
    return {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(seconds)}
