"""docs/dags.md is what the DAGs say of themselves."""

import subprocess
import sys

from shardpost.checkout import CHECKOUT


def test_the_page_of_all_dags_is_current() -> None:
    script = CHECKOUT / "docs" / "generate_dags.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
