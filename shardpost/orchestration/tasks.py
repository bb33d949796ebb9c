"""What every task has: its defaults, its params, its log, and one sentence why it failed.

Airflow's UI shows the lines of a log between two marks as one line, closed; an end without a
beginning is nothing to it. Lines that are Spark's own are in such groups.

The sentence is the last line of the log that is visible at once. Airflow logs a traceback, mostly
of its own code, and puts what a task's callbacks log into a closed group. So a failure whose text
says all has its traceback in a closed group, and the callbacks end all groups before they say why.

A task may ask a person: Airflow's own operator, whose questions stand under Required Actions.
"""

import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk import Context, Param
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from click import Choice, Command, Parameter

from shardpost.alerts.model.alert import (
    DEADLINE_MISSED,
    EVENT,
    NEEDS_A_PERSON,
    REPORTED,
    TASK_FAILED,
    Condition,
)
from shardpost.errors import BAD_USAGE, NEEDS_ATTENTION, ShardpostError
from shardpost.installation import Installation
from shardpost.orchestration.connections import of_dag, task_installation
from shardpost.run_requests.model.requests import DAG_PARAMS
from shardpost.topics.model.finding import Severity
from shardpost.wording import some_of

log = logging.getLogger(__name__)

# Exit codes of ours after which trying again changes nothing: a person has to act first.
NEVER_TRIED_AGAIN = (BAD_USAGE, NEEDS_ATTENTION)
TRACEBACK = "Traceback (the reason is below it)"
MOST_NAMED = 20  # lines of what needs attention in one alert
# The types of runs that a person started, or asked for by a run request.
ON_DEMAND = ("manual", "operator_triggered")


@contextmanager
def task_errors() -> Iterator[None]:
    """Fail a task with the one line of our errors; also a decorator of a task's function.

    A ShardpostError fails it, without a retry where that would not help. The traceback of that, and
    of Airflow's own exceptions, is in a closed group of the log; why a task is skipped is not.
    """
    try:
        yield
    except AirflowSkipException as skip:
        log.info("skipped: %s", skip)
        raise
    except AirflowException:
        open_group(TRACEBACK)
        raise
    except ShardpostError as error:
        open_group(TRACEBACK)
        raise failure(str(error), error.exit_code) from None


class RefusedError(AirflowFailException):
    """The request of a run is wrong, such as a week that does not exist: nothing was begun."""


def failure(text: str, exit_code: int) -> AirflowException:
    """Return the exception that fails a task whose work ended with that exit code."""
    if exit_code == BAD_USAGE:
        return RefusedError(text)
    kind = AirflowFailException if exit_code in NEVER_TRIED_AGAIN else AirflowException
    return kind(text)


def say_that_it_is_tried_again(context: Context) -> None:
    """Log, as the last line, why an attempt failed."""
    task = context["ti"]
    close_groups(MOST_OPEN)
    attempt = f"attempt {task.try_number} of {task.max_tries + 1}"
    log.warning("%s failed, and Airflow retries: %s", attempt, _why(context))


def alert(context: Context) -> None:
    """Log, as the last line, why a task failed; alert people, unless its last run failed too.

    There with the run, the task and its shards. That the params of a manual or requested run were
    refused is an event: no later success is about it.
    """
    task = context["ti"]
    label = getattr(task, "rendered_map_index", None)
    where = f"{task.dag_id} {task.run_id} {task.task_id}{f' ({label})' if label else ''}"
    why = _why(context)
    line = f"{where}, attempt {task.try_number}: {why}"
    is_refused = isinstance(context.get("exception"), RefusedError)
    is_manual = getattr(context.get("dag_run"), "run_type", None) in ON_DEMAND
    subject, source = _task_subject(context), REPORTED
    if is_refused and is_manual:
        subject, source = f"{subject} {task.run_id}", EVENT
    meaning = "the work of that run is not done"
    found = Condition(TASK_FAILED, subject, Severity.RISK, line, meaning, source)
    alert_people(task.dag_id, found, line)
    close_groups(MOST_OPEN)
    log.error("failed: %s", why)


def end_alert(context: Context) -> None:
    """End the alert about a task, and those about mapped ones before it in its run; never fails.

    The last task of a run ends the one about a late run of its DAG, too, and so does a task that
    skips itself: Airflow calls nothing for the tasks after it.
    """
    from shardpost.alerts.notifier import resolve

    own, run, task = _task_subject(context), context["ti"], context["task"]
    before = task.upstream_task_ids if task.trigger_rule == "all_success" else ()
    mapped = tuple(f"{run.dag_id} {run.run_id} {one} (" for one in before)

    def is_over(one: Condition) -> bool:
        if (one.rule, one.subject) == (DEADLINE_MISSED, run.dag_id):
            return run.state == "skipped" or not task.downstream_task_ids
        is_task = (one.rule, one.source) == (TASK_FAILED, REPORTED)
        return is_task and (one.subject == own or one.text.startswith(mapped))

    try:
        resolve(_installation_of_callback(run.dag_id), is_over, datetime.now(UTC))
    except ShardpostError as error:
        log.warning("cannot report whether an alert about this task is over: %s", error)


def _task_subject(context: Context) -> str:
    """Return what identifies a task in all its runs; a mapped task includes its index."""
    task = context["ti"]
    index = getattr(task, "map_index", None)
    is_mapped = index is not None and index >= 0
    return f"{task.dag_id} {task.task_id}{f' {index}' if is_mapped else ''}"


def alert_of_attention(context: Context, lines: Sequence[str]) -> None:
    """Log, and alert people once, as one line, what a run leaves to a person."""
    task, lines = context["ti"], [in_form(line) for line in lines]
    for line in lines:
        log.warning(line)
    what, meaning = some_of(lines, MOST_NAMED, "; "), "the result of this run needs a person"
    subject = f"{task.dag_id} {task.run_id} {task.task_id}"
    line = f"{task.dag_id} {task.run_id} needs attention: {what}"
    found = Condition(NEEDS_A_PERSON, subject, Severity.RISK, what, meaning, EVENT)
    alert_people(task.dag_id, found, line)


def _why(context: Context) -> str:
    match context.get("exception"):
        case None:
            return "it was killed or marked failed"
        case AirflowTaskTimeout():
            return f"it took longer than {context['ti'].task.execution_timeout} and was stopped"
        case str() | AirflowException() | ShardpostError() as known if str(known):
            return in_form(" ".join(str(known).split()))
        case error:
            return " ".join(f"{type(error).__name__}: {error}".split())


def alert_people(dag_id: str, condition: Condition, line: str) -> None:
    """Alert people through the channels; alerts.log gets the line each time."""
    from shardpost.alerts.notifier import report

    report(_installation_of_callback(dag_id), condition, datetime.now(UTC), line)


def _installation_of_callback(dag_id: str) -> Installation:
    """Return the installation of a task; without connections where these are what is wrong."""
    own = of_dag(dag_id)
    try:
        return task_installation(own)
    except Exception:
        log.warning("the connections cannot be used for this alert, so the settings are used")
        return Installation(own.load())


# The runs of a DAG whose runs act as of now: a backfill would do the same thing many times. By
# their names: the SDK does not export Airflow's enum of them.
NO_BACKFILL: Any = (
    "scheduled",
    "manual",
    "operator_triggered",
    "asset_triggered",
    "asset_materialization",
)

# default_args of every DAG.
DEFAULTS: dict[str, Any] = {
    "owner": "shardpost",
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=1),
    "on_retry_callback": say_that_it_is_tried_again,
    "on_failure_callback": alert,
    "on_success_callback": end_alert,
    "on_skipped_callback": end_alert,
}


def text_param(title: str, description: str, **more: Any) -> Param:
    """Return a param for a text, by default none: the UI's form marks others as required."""
    return Param(None, type=["null", "string"], title=title, description=description, **more)


def flag_param(title: str, description: str, *, default: bool = False) -> Param:
    """Return a param for yes or no, by default no."""
    return Param(default, type=["null", "boolean"], title=title, description=description)


# {option of a command: the param of a DAG that means the same}.
_PARAMS = {f"--{one.replace('_', '-')}": one for one in " ".join(DAG_PARAMS.values()).split()}
_PARAMS |= {"--from": "source", "--id": "import_id"}
_OPTION = re.compile(r"`[^`]*`|--[a-z][a-z-]*")


def in_form(text: str) -> str:
    """Return a text with the params of a form for options, but not in `whole commands`."""

    def named(found: re.Match[str]) -> str:
        if (part := found[0]).startswith("`--"):
            return f"`{in_form(part[1:-1])}`"
        return f"param {_PARAMS[part]}" if part in _PARAMS else part

    return _OPTION.sub(named, text)


def params_of(command: Command, names: Iterable[str], **formats: str) -> dict[str, Param]:
    """Return params that are options of a command, too: with their names, texts and choices.

    `formats` are those of shardpost_param_formats.py that check a text.
    """
    of_name = {one.name: one for one in command.params}
    options = of_name | {one.opts[-1].strip("-").replace("-", "_"): one for one in command.params}
    return {name: _param_of(name, options[name], formats.get(name)) for name in names}


def _param_of(name: str, option: Parameter, format_: str | None) -> Param:
    title, said = name.replace("_", " ").capitalize(), getattr(option, "help", None) or ""
    if getattr(option, "is_flag", False):
        return flag_param(title, said)
    more: dict[str, Any] = {} if format_ is None else {"format": format_}
    if isinstance(option.type, Choice):
        choices = [*option.type.choices]
        shown = {"null": "by default", **{one: one for one in choices}}
        more |= {"enum": [None, *choices], "values_display": shown}
    return text_param(title, said, **more)


# By these options a person confirms what a run would refuse.
MEANT = ("country_changed", "accept_drop")

ANSWER = "answer"
REASON = "reason"
FORM = {REASON: text_param("Why", "Recorded on the topic decisions.")}


class Approval(HITLBranchOperator):
    """Waits for a person, without a slot, and follows the task that the chosen option names.

    The alert channels are notified that it waits. Its XCom `answer` is {"by", "why"}; the latter
    is None if its `params` are not FORM, or the field was left empty.
    """

    def execute(self, context: Context) -> Any:
        """Ask."""
        link = self.generate_link_to_ui_from_context(context=context)
        alert_of_attention(context, [f"{self.subject} Answer at {link}"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Store who answered; continue as they chose."""
        if "error" not in event:
            by = event["responded_by_user"]["name"]
            why = (event["params_input"] or {}).get(REASON)
            context["ti"].xcom_push(key=ANSWER, value={"by": by, "why": why})
        return super().execute_complete(context, event)

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """Fail, in words where nobody answered: the next attempt asks again."""
        if event["error_type"] == "timeout":
            raise HITLTimeoutError(f"nobody answered within {self.response_timeout}")
        super().process_trigger_event_error(event)


# Open at most when a callback runs: one of ours, or `Pre Execute`, and in it `Post Execute`.
MOST_OPEN = 2


def open_group(name: str) -> None:
    """Begin a group; the lines that follow are in it."""
    log.info("::group::%s", name)


def close_groups(count: int) -> None:
    """End the innermost groups; more than are open do no harm."""
    for _ in range(count):
        log.info("::endgroup::")


# As shardpost.logs writes them.
OWN_LINE = re.compile(
    r"[-0-9]{10} [:0-9]{8},[0-9]{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (?s:(.*))"
)
ERROR_BEGINS = "shardpost: "  # begins the line of an error that ends a job
SPARK_LINE = re.compile(
    r"[-/0-9]{8,10} [:,0-9]{8,12} (TRACE|DEBUG|INFO|WARN|ERROR|FATAL|JVM) "
    r"|Spark-Submit cmd: |WARNING: |:: |Setting default log level|To adjust logging level"
    r"|Using Spark's default|at [\w.$/]+\(|Caused by: |\.\.\. [0-9]+ more"
)


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """Takes the lines that the provider's hook logs, and logs each as what it is.

    What neither the job nor Spark is known to write, such as the lines of a dry run or a traceback
    of Python, stays visible.
    """

    def __init__(self) -> None:
        super().__init__(log)
        self._is_in_group = False
        self._error: str | None = None
        self._last = deque[str](maxlen=5)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, Any]:
        """Return the line as it is."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        """Log one line, in a group if it is Spark's."""
        text = in_form(str(msg) % args if args else str(msg))
        if own := OWN_LINE.fullmatch(text):
            level, text = logging.getLevelNamesMapping()[own[1]], own[2]
        elif text.startswith(ERROR_BEGINS):
            level, self._error = logging.ERROR, text.removeprefix(ERROR_BEGINS)
        is_spark = not own and SPARK_LINE.match(text) is not None
        self._group(is_spark=is_spark)
        if not is_spark and text.strip():
            self._last.append(text)
        self.logger.log(level, "%s", text)

    @property
    def said(self) -> str:
        """The job's own error, else the last lines that are not Spark's."""
        return self._error or " | ".join(self._last)

    def close(self) -> None:
        """End the group of the last lines."""
        self._group(is_spark=False)

    def _group(self, *, is_spark: bool) -> None:
        if is_spark and not self._is_in_group:
            open_group("Spark")
        elif not is_spark and self._is_in_group:
            close_groups(1)
        self._is_in_group = is_spark
