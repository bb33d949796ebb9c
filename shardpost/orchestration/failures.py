"""A task that fails says why in one sentence: the last line of its log that is visible at once.

Airflow logs a traceback, mostly of its own code, and puts what a task's callbacks log into a closed
group. So a failure whose text says all has its traceback in a closed group, and the callbacks end
all groups before they say why.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airflow.sdk import Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from shardpost.alerts.channels import tell
from shardpost.alerts.model.alert import Message
from shardpost.alerts.model.pages import NEEDS_A_PERSON, TASK_FAILED
from shardpost.errors import BAD_USAGE, NEEDS_ATTENTION, ShardpostError
from shardpost.orchestration.log_groups import close_all_groups, open_group
from shardpost.settings import load

log = logging.getLogger(__name__)

# Exit codes of ours after which trying again changes nothing: a person has to act first.
NEVER_TRIED_AGAIN = (BAD_USAGE, NEEDS_ATTENTION)
TRACEBACK = "Traceback (the reason stands below it)"
MOST_NAMED = 20  # lines of what needs attention in one alert


@contextmanager
def in_words() -> Iterator[None]:
    """Let a task end as our errors say; also a decorator, of the function of a task.

    A ShardpostError fails it, without a retry where that would not help. The traceback of that, and
    of Airflow's own exceptions, is in a closed group of the log; why a task is skipped is not.
    """
    try:
        yield
    except AirflowSkipException as skip:
        log.info("skipped: %s", skip)
        raise
    except AirflowException:
        open_group(log, TRACEBACK)
        raise
    except ShardpostError as error:
        open_group(log, TRACEBACK)
        raise failure(str(error), error.exit_code) from None


def failure(text: str, exit_code: int) -> AirflowException:
    """Return the exception that fails a task whose work ended with that exit code."""
    kind = AirflowFailException if exit_code in NEVER_TRIED_AGAIN else AirflowException
    return kind(text)


def say_that_it_is_tried_again(context: Context) -> None:
    """Log, as the last line, why an attempt failed."""
    task = context["ti"]
    close_all_groups(log)
    attempt = f"attempt {task.try_number} of {task.max_tries + 1}"
    log.warning("%s failed, and Airflow tries again: %s", attempt, _why(context))


def alert(context: Context) -> None:
    """Log, as the last line, why a task failed; tell it through the alert channels.

    There with the run, the task and its shards.
    """
    task = context["ti"]
    label = getattr(task, "rendered_map_index", None)
    where = f"{task.dag_id} {task.run_id} {task.task_id}{f' ({label})' if label else ''}"
    why = _why(context)
    line = f"{where}, attempt {task.try_number}: {why}"
    _tell(f"a task failed: {task.dag_id}", line, TASK_FAILED)
    close_all_groups(log)
    log.error("failed: %s", why)


def alert_of_attention(context: Context, lines: Sequence[str]) -> None:
    """Log, and tell as one line, what a run that is done leaves to a person."""
    task = context["ti"]
    for line in lines:
        log.warning(line)
    named = [*lines[:MOST_NAMED], *(["…"] if len(lines) > MOST_NAMED else [])]
    what = f"{task.dag_id} {task.run_id} needs attention: {'; '.join(named)}"
    _tell(f"{task.dag_id} needs attention", what, NEEDS_A_PERSON)


def _why(context: Context) -> str:
    """Return why the task failed, in one line."""
    match context.get("exception"):
        case None:
            return "it was killed or marked failed"
        case AirflowTaskTimeout():
            return f"it took longer than {context['ti'].task.execution_timeout}, and was stopped"
        case str() | AirflowException() | ShardpostError() as known if str(known):
            return " ".join(str(known).split())
        case error:
            return " ".join(f"{type(error).__name__}: {error}".split())


def _tell(title: str, line: str, page: str) -> None:
    """Tell it through the alert channels, with a page of the runbook; alerts.log has one line."""
    settings = load()
    body = f"{line}\nwhat to do: {settings.runbook}{page}"
    tell(settings, Message(f"Shardpost: {title}", body, in_log=line))
