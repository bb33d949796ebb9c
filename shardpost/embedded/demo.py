"""The demo: a stack of its own, fresh, on free ports, in which the story is played.

Then it is gone.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from shardpost.embedded import ports, stack, story
from shardpost.embedded.airflow_home import disable_schedules
from shardpost.run_requests.airflow_api import log_in
from shardpost.settings import Settings

Say = Callable[[str], None]

# Everything that would tie the demo to somebody's own Kafka, mail server or topics keeps its
# default.
_KEPT = ("spark_master", "driver_memory", "kafka_timeout", "smtp_timeout", "country")


def run(settings: Settings, *, now: datetime, keep: bool, say: Say) -> None:
    """Start the stack, play the story, stop it; with `keep`, leave it up and say how to use it."""
    began = time.monotonic()
    with _home(settings, keep=keep) as home:
        own = _settings(settings, home)
        if not keep:  # scheduled runs, due at once, would only delay the story's own
            disable_schedules(own)
        try:
            stack.up(own, with_airflow=True, say=say)
            airflow = stack.status(own)["airflow"]
            with log_in(airflow["address"], airflow["user"], airflow["password"]) as api:
                story.tell(own, api, now, say)
        except BaseException:
            stack.down(own, say=say)
            raise
        say(f"\ndone after {time.monotonic() - began:.0f} s")
        if keep:
            _say_how_to_go_on(own, airflow, say)
        else:
            stack.down(own, say=say)


def _settings(settings: Settings, home: Path) -> Settings:
    kept = {name: getattr(settings, name) for name in _KEPT}
    chosen = {f"{name}_port": ports.choose() for name in ("kafka", "smtp", "airflow")}
    # So few shards are mailed by one task, which is quickest for two clients.
    return Settings.model_validate({"home": home, "partitions": 4, **chosen, **kept})


@contextmanager
def _home(settings: Settings, *, keep: bool) -> Iterator[Path]:
    settings.home.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="demo-", dir=settings.home))
    yield home
    if not keep:  # after a failure it stays, with its logs
        shutil.rmtree(home)


def _say_how_to_go_on(own: Settings, airflow: dict[str, str], say: Say) -> None:
    variables = own.environ()
    names = [f"SHARDPOST_{name}" for name in ("HOME", "KAFKA_PORT", "SMTP_PORT", "AIRFLOW_PORT")]
    say(f"it is still up: {airflow['address']}, user {airflow['user']}, {airflow['password']}")
    say("to use it, or to stop it with `shardpost down`:")
    say("  export " + " ".join(f"{name}={variables[name]}" for name in names))
