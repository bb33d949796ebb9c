"""What Airflow finds when tests import it: a home and a database of their own, that nobody shares.

Airflow reads its settings once, when it is imported: so this is done before any test module is.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

from shardpost.checkout import CHECKOUT
from shardpost.embedded.airflow import environment
from shardpost.settings import load

HOME = Path(tempfile.mkdtemp(prefix="shardpost-airflow-"))
SAMPLES = CHECKOUT / "tests" / "dags" / "samples"
BUNDLES = [
    {
        "name": name,
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(path)},
    }
    for name, path in {"dags-folder": CHECKOUT / "dags", "samples": SAMPLES}.items()
]
ENVIRON = environment(
    load(
        {
            "SHARDPOST_HOME": str(HOME),
            "SHARDPOST_SPARK_MASTER": "local[1]",
            "SHARDPOST_DRIVER_MEMORY": "512m",
        }
    )
) | {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(BUNDLES)}
os.environ |= {name: text for name, text in ENVIRON.items() if name.startswith("AIRFLOW__")}
os.environ["AIRFLOW_HOME"] = ENVIRON["AIRFLOW_HOME"]


def remove() -> None:
    """Take away all that was written; the home is there even if no test imports Airflow."""
    shutil.rmtree(HOME)
