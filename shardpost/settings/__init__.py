"""Every setting of Shardpost: `load()` returns the settings of this process, read once.

`installations()` returns where those of each installation are read, for DAGs that are parsed.
"""

from shardpost.settings.loading import (
    Declared,
    declared,
    environment_of,
    installations,
    load,
    one,
)
from shardpost.settings.values import Settings

__all__ = [
    "Declared",
    "Settings",
    "declared",
    "environment_of",
    "installations",
    "load",
    "one",
]
