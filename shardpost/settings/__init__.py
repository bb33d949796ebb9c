"""Every setting of Shardpost: `load()` returns the settings of this process, read once.

`installations()` has where those of each installation are, as DAGs read them when they are parsed.
"""

from shardpost.settings.loading import Declared, declared, installations, load, one
from shardpost.settings.values import Settings

__all__ = ["Declared", "Settings", "declared", "installations", "load", "one"]
