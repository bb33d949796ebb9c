"""What a wheel has beside the package: DAGs, plugins, jobs, and where jars and settings come from.

An editable install uses them where they lie in the checkout (shardpost/checkout.py).
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = "shardpost/shipped"
NAMES = (
    *("dags", "spark_jobs", "ivy", "requirements.txt", ".env.example"),
    *("docs/runbook.md", "docs/schemas"),
)


class ShippedFiles(BuildHookInterface[Any]):
    """Adds to a wheel what `shardpost.checkout` expects there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files; plugins become modules of their own, as in Airflow's plugins folder.

        Modules of others lie beside them: hence the prefix `shardpost_` of their names.
        """
        if version == "editable":
            return
        root = Path(self.root)
        build_data["force_include"] |= {
            **{str(root / name): f"{SHIPPED}/{name}" for name in NAMES},
            **{str(file): file.name for file in sorted((root / "plugins").glob("*.py"))},
        }
