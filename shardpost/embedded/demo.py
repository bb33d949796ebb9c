"""The demo: plays its story on a fresh stack of its own, on free ports, and removes it."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from shardpost.embedded import demo_scenario, ports, stack
from shardpost.embedded.airflow_home import disable_schedules
from shardpost.run_requests.airflow_api import log_in
from shardpost.settings import Settings

Say = Callable[[str], None]

# All others have their defaults: the demo uses nobody's own Kafka, mail server or topics.
_KEPT_SETTINGS = ("spark_master", "driver_memory", "kafka_timeout", "smtp_timeout", "country")


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
                demo_scenario.play(own, api, now, say)
        except BaseException:
            stack.down(own, say=say)
            say(f"not finished; kept: {home}; what was started has its log in {home / 'logs'}")
            raise
        say(f"\ndone after {time.monotonic() - began:.0f} s")
        if keep:
            _say_how_to_use(own, airflow, say)
        else:
            stack.down(own, say=say)


def _settings(settings: Settings, home: Path) -> Settings:
    kept = {name: getattr(settings, name) for name in _KEPT_SETTINGS}
    chosen = {f"{name}_port": ports.choose() for name in ("kafka", "smtp", "airflow")}
    # With four shards one task sends all e-mails, which is quickest for two clients.
    return Settings.model_validate({"home": home, "partitions": 4, **chosen, **kept})


@contextmanager
def _home(settings: Settings, *, keep: bool) -> Iterator[Path]:
    settings.home.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="demo-", dir=settings.home))
    yield home
    if not keep:  # after a failure it is kept, with its logs
        shutil.rmtree(home)


def _say_how_to_use(own: Settings, airflow: dict[str, str], say: Say) -> None:
    variables = own.environ()
    names = [f"SHARDPOST_{name}" for name in ("HOME", "KAFKA_PORT", "SMTP_PORT", "AIRFLOW_PORT")]
    say(
        f"the stack is still up: {airflow['address']}, user {airflow['user']}, password"
        f" {airflow['password']}"
    )
    say("to use it, or to stop it with `shardpost down`:")
    say("  export " + " ".join(f"{name}={variables[name]}" for name in names))
