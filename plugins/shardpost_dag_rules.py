"""What holds for a whole DAG: its params, where its tasks run, its deadline, and the heartbeat.

Airflow imports this file as the module `shardpost_dag_rules`, for DAGs, and for callbacks in the
triggerer.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import DAG, BaseOperator, Context
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.log import mask_secret

from shardpost.alerts.model.alert import DEADLINE_MISSED, REPORTED, Condition
from shardpost.checkout import DAGS
from shardpost.errors import UsageError
from shardpost.orchestration.connections import task_installation
from shardpost.orchestration.tasks import alert_people, task_errors
from shardpost.run_requests.model.requests import require_known
from shardpost.settings import Declared
from shardpost.settings.forms import read_text
from shardpost.topics.model.finding import Severity
from shardpost.wording import duration_text, meant

log = logging.getLogger(__name__)

ALL = "*"
OPTIONS = {
    "executor": str,
    "executor_config": dict,
    "pool": str,
    "priority_weight": int,
    "queue": str,
}
_KINDS = {str: "a text", dict: "a map", int: "a whole number"}


def apply_rules(own: Declared, dag: DAG) -> None:
    """Let a DAG that has all its tasks refuse unknown params, and run where the settings say.

    Its tasks get what SHARDPOST_TASK_OPTIONS has for all DAGs, for this one, and for each task.
    UsageError for a wrong entry, if it is for this DAG, is most like it, or is like none. That of a
    named installation fails its tasks: its file breaks no DAG of another, which the same file of
    DAGs has, and no task of it runs where it should not.
    """
    _set(dag.roots, "pre_execute", partial(_require_params, (*dag.params,)))
    try:
        _set_options(dag, dag.dag_id.removeprefix(own.id("")), own.one("task_options"))
    except UsageError as error:
        if not own.name:
            raise
        log.warning("installation %s: the tasks of %s will fail: %s", own.name, dag.dag_id, error)
        _set(dag.tasks, "pre_execute", partial(_refuse, str(error)))


@task_errors()
def _require_params(known: tuple[str, ...], context: Context) -> None:
    require_known(context["dag_run"].conf, known)


@task_errors()
def _refuse(why: str, context: Context) -> None:
    raise UsageError(why)


def _set_options(dag: DAG, name: str, text: str | None) -> None:
    options = _options(text) if text else {}
    tasks = {f"{name}.{task.task_id}": task for task in dag.tasks}
    _require_known(options, name, tasks)
    for key in (ALL, name, *tasks):
        for option, value in options.get(key, {}).items():
            _require_option(key, option, value)
            _set([tasks[key]] if key in tasks else dag.tasks, option, value)


def _set(tasks: Iterable[Any], option: str, value: object) -> None:
    for task in tasks:
        if isinstance(task, MappedOperator):
            task.partial_kwargs[option] = value
        else:
            setattr(task, option, value)


def _options(text: str) -> dict[str, dict[str, Any]]:
    """Return {"*", DAG or DAG.task: {option: value}} of YAML or JSON, or of a file that has it."""
    is_file = not text.lstrip().startswith("{") and "\n" not in text
    try:
        found = yaml.safe_load(read_text(Path(text).expanduser()) if is_file else text)
    except yaml.YAMLError as error:
        raise _wrong(f"expected YAML or JSON: {' '.join(str(error).split())}") from None
    entries = found.items() if isinstance(found, dict) else [(None, None)]
    if not all(isinstance(key, str) and isinstance(one, dict) for key, one in entries):
        raise _wrong('expected a map such as {"*": {"queue": "spark"}}, or the path of a file')
    return dict(entries)


def _require_known(keys: Iterable[str], name: str, tasks: Collection[str]) -> None:
    dags = {file.stem for file in DAGS.glob("*.py")}
    for key in {*keys} - {ALL, *dags, *tasks}:
        of = key.partition(".")[0]
        nearest = [of] if of in dags else get_close_matches(of, dags, 1)
        if not nearest or name in nearest:
            raise _wrong(f"no DAG or task {key}", key, tasks if of == name else dags)


def _require_option(key: str, option: str, value: object) -> None:
    if option not in OPTIONS:
        raise _wrong(f"{key}: no option {option}", option, OPTIONS)
    if type(value) is not OPTIONS[option]:
        raise _wrong(f"{key}: {option}: expected {_KINDS[OPTIONS[option]]}, found {value!r}")


def _wrong(text: str, word: str = "", known: Iterable[str] = ()) -> UsageError:
    expected = f"; expected one of {', '.join(sorted(known))}" if known else ""
    return UsageError(f"SHARDPOST_TASK_OPTIONS: {text}{meant(word, known) or expected}")


class DagWithDeadline(DAG):
    """A DAG that has a deadline, and can be tried all the same.

    `airflow dags test` of Airflow 3.3.2 ends in a traceback at a deadline (apache/airflow#73428).
    """

    def test(self, *args: Any, **options: Any) -> Any:
        """Run once, without a deadline."""
        deadline, self.deadline = self.deadline, None
        try:
            return super().test(*args, **options)
        finally:
            self.deadline = deadline


def due_within(interval: timedelta) -> DeadlineAlert:
    """Return that people are alerted of a run that has not ended so long after it was queued."""
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=interval,
        # In the triggerer: that all slots are taken may be why the run is late.
        callback=AsyncCallback(alert_of_late_run, {"within": duration_text(interval)}),
    )


async def alert_of_late_run(within: str, context: Mapping[str, Any]) -> None:
    """Alert people of a run that has not ended, until a later one succeeds.

    Of one that failed its task alerts. The context is of when the deadline passed: while there was
    no triggerer, the run may have ended.
    """
    run = context["dag_run"]
    state = await _state_now(run)
    if state not in ("queued", "running"):
        return
    text = (
        f"run {run['dag_run_id']} is {state}, and was queued at {run['queued_at']}:"
        f" expected to end within {within}"
    )
    meaning = "the work of this DAG is late, and later runs may wait for this one"
    found = Condition(DEADLINE_MISSED, run["dag_id"], Severity.RISK, text, meaning, REPORTED)
    await asyncio.to_thread(alert_people, run["dag_id"], found, text)


async def _state_now(run: Mapping[str, Any]) -> str | None:
    """Return a run's state, None if it was deleted; without an answer that of the context."""
    from shardpost.orchestration.own_runs import OwnRuns

    try:
        return await asyncio.to_thread(OwnRuns().state, run["dag_id"], run["dag_run_id"])
    except Exception as error:
        log.warning("%s: its state is not known, so taken from before: %s", run["dag_id"], error)
        return str(run["state"])


class Heartbeat(BaseOperator):
    """Requests SHARDPOST_HEARTBEAT_URL when scheduler, triggerer and worker have all done a part.

    A request that fails is logged, and fails nothing. A triggerer that is down fails the task.
    """

    def execute(self, context: Context) -> None:
        """Go through the triggerer."""
        now = DateTimeTrigger(moment=datetime.now(UTC))
        self.defer(trigger=now, method_name="send", timeout=timedelta(minutes=5))

    def send(self, context: Context, event: object = None) -> None:
        """Send one request: with a metric to a Pushgateway, else a plain one."""
        url = task_installation().settings.heartbeat_url or ""
        mask_secret(url)
        is_gateway = "/metrics/job/" in url
        body = f"shardpost_heartbeat_seconds {datetime.now(UTC).timestamp():.0f}\n"
        try:
            httpx.request(
                "POST" if is_gateway else "GET",
                url,
                content=body if is_gateway else None,
                timeout=10,
                follow_redirects=True,
            ).raise_for_status()
        except httpx.HTTPStatusError as error:
            log.warning("SHARDPOST_HEARTBEAT_URL: the answer is %s", error.response.status_code)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            log.warning("SHARDPOST_HEARTBEAT_URL: no answer (%s)", type(error).__name__)
