"""Our plugins, for an Airflow that has the package from a wheel: the entry point `airflow.plugins`.

A wheel has the files of `plugins/` as modules of the same names. A checkout's are in Airflow's
plugins folder, and are not registered a second time.
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from shardpost.checkout import IS_CHECKOUT


def _of_modules(attribute: str) -> list[Any]:
    """Return what all our plugins have under a name; their modules register param formats, too."""
    if IS_CHECKOUT:
        return []
    import shardpost_app
    import shardpost_iso_weeks
    import shardpost_param_formats  # noqa: F401

    plugins = (shardpost_iso_weeks.IsoWeeksPlugin, shardpost_app.ShardpostApp)
    return [one for plugin in plugins for one in getattr(plugin, attribute)]


class InstalledPlugin(AirflowPlugin):
    """All of them as one."""

    name = "shardpost_installed"
    timetables = _of_modules("timetables")
    fastapi_apps = _of_modules("fastapi_apps")
    external_views = _of_modules("external_views")
