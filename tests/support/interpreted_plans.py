"""Spark's plans are interpreted in quick runs, and made once: data of tests is small.

To compile them, and to plan again at each stage, takes longer than to run them.
With `--all` plans are as users' are; so they are in the processes of commands, always.
"""

from tests.support.how_far import is_every

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def plan_conf() -> dict[str, str]:
    """Return the configuration of a session of the tests, or of a job that a test kills."""
    return {} if is_every() else _INTERPRETED
