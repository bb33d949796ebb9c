"""Every setting of Shardpost: `load()` returns the settings of this process, read once.

`one()` returns one of them, for a DAG that is parsed; `given()` which are not left to defaults.
"""

from shardpost.settings.loading import given, load, one
from shardpost.settings.values import Settings

__all__ = ["Settings", "given", "load", "one"]
