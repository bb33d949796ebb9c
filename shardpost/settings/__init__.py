"""Every setting of Shardpost: `load()` returns the settings of this process.

`one()` returns one of them, for a DAG that is parsed.
"""

from shardpost.settings.loading import load, one
from shardpost.settings.values import Settings

__all__ = ["Settings", "load", "one"]
