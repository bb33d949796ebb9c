"""Every setting of Shardpost: `load()` returns the settings of this process."""

from shardpost.settings.loading import load
from shardpost.settings.values import Settings

__all__ = ["Settings", "load"]
