"""Which alerts about tasks end when a task succeeds; the context is of no Airflow."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Context

from shardpost.alerts.history import list_firing
from shardpost.orchestration import tasks
from shardpost.orchestration.tasks import alert, end_alert
from shardpost.settings import Settings
from tests.support.installed import installed


@pytest.fixture(autouse=True)
def _of_this_home(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_installation_of_callback", lambda _: installed(settings))


def context(task: str, run: str = "r1", index: int = -1, **of_task: Any) -> Context:
    instance = SimpleNamespace(
        dag_id="weekly_email", run_id=run, task_id=task, map_index=index, try_number=3
    )
    if index >= 0:
        instance.rendered_map_index = f"shards {index}"
    given = {"upstream_task_ids": set(), "trigger_rule": "all_success", **of_task}
    made = {"ti": instance, "task": SimpleNamespace(**given), "exception": "it broke"}
    return cast(Context, made)


def firing(settings: Settings) -> list[str]:
    return [
        one.condition.subject
        for one in list_firing(installed(settings).tables)
        if one.ended_at is None
    ]


def test_a_mapped_task_that_succeeds_ends_its_own_alert_alone(settings: Settings) -> None:
    for index in (0, 1):
        alert(context("send", index=index))
    end_alert(context("send", index=1))
    assert firing(settings) == ["weekly_email send 0"]


def test_an_index_that_is_gone_is_over_once_the_run_has_passed_its_task(
    settings: Settings,
) -> None:
    alert(context("send", index=5))
    alert(context("send_all", index=5))
    end_alert(context("report", upstream_task_ids={"send"}))
    assert firing(settings) == ["weekly_email send_all 5"]


@pytest.mark.parametrize("other", [{"run": "r2"}, {"trigger_rule": "all_done"}])
def test_what_passes_without_that_success_ends_nothing(
    settings: Settings, other: dict[str, Any]
) -> None:
    alert(context("send", index=5))
    end_alert(context("report", upstream_task_ids={"send"}, **other))
    assert firing(settings) == ["weekly_email send 5"]
