"""Every setting of Shardpost: `load()` returns the settings of this process, read once.

`one()` returns one of them, for a DAG that is parsed; `given()` which are not left to defaults.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardpost.settings.loading import given, load, one
    from shardpost.settings.values import Settings

__all__ = ["Settings", "given", "load", "one"]


def __getattr__(name: str) -> Any:
    """Import one of these when it is asked for: the public `letters` needs no pydantic."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shardpost.settings import loading

    return getattr(loading, name)
