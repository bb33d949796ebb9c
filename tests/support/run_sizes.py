"""What counts as few, and as many, for the time of a test."""

from dataclasses import replace

import pytest

from shardpost.spark import run_size


def set_thresholds(patch: pytest.MonkeyPatch, **changed: int) -> None:
    """Have other thresholds, by their names in run_size.Thresholds."""
    patch.setattr(run_size, "THRESHOLDS", replace(run_size.THRESHOLDS, **changed))
