"""rebuild_tables: which way a run takes, the arguments of its jobs, and who answers for a swap."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import ParamValidationError
from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

from shardpost.errors import UsageError
from shardpost.installation import Installation
from shardpost.orchestration import tasks
from shardpost.orchestration.tasks import ANSWER
from shardpost.rebuilds import drop, registry
from shardpost.rebuilds.model.difference import Difference, Differences
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.spark.job import request_of
from tests.dags.conftest import StandIn, read_back, states

AS_DECLARED = dict.fromkeys(
    ("action", "country", "holds", "source", "tables", "max_changed", "why")
)
OLD, NEW = (
    {"snapshot": 7, "country": code, "holds": None, "tables": {"positions": 1}}
    for code in ("US", "GB")
)
# 25 % of the positions differ, 10 % of the holders.
FOUND = Difference(OLD, NEW, Differences(75, 25, 0, 0), Differences(90, 4, 3, 3))
BUILT = {"rebuild": 2, "state": "ready"}
SWAPPED = {"rebuild": 2, "state": "in use"}
REFUSED = BUILT | {"refused": "30.00% differ, more than 25.00%: nothing was swapped"}


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(_tables: object, _kafka: object, now: datetime, number: int) -> Difference:
        assert (now.tzinfo, number) == (UTC, BUILT["rebuild"])
        return FOUND

    monkeypatch.setattr(registry, "compare_open", compare)


class Task:
    """What a function of the DAG sees of its task: XComs by (task, key)."""

    def __init__(self, **found: dict[str, Any]) -> None:
        self.pushed: dict[str, Any] = {}
        self._found = found

    def xcom_pull(self, *, task_ids: str, key: str = "return_value") -> Any:
        return self._found.get(task_ids, {}).get(key)

    def xcom_push(self, *, key: str, value: object) -> None:
        self.pushed[key] = value


def context(task: Task, **params: object) -> dict[str, Any]:
    run = SimpleNamespace(triggering_user_name="anna", run_type="manual", conf=params)
    return {"dag_run": run, "params": AS_DECLARED | params, "ti": task}


def order(dag: Any, name: str, task: Task, **params: object) -> Any:
    return dag.task_dict[name].request_of(context(task, **params))


def calls_of(file: Path) -> list[Any]:
    return [request_of(RebuildRequest, call) for call in file.read_text().splitlines()]


def test_it_runs_by_hand_only(dag: Any) -> None:
    assert not dag.timetable.can_be_scheduled


def test_the_params_reach_the_job(dag: Any) -> None:
    made = order(dag, "build", Task(), country=" GB ", tables="share_holders")
    assert (made.action, made.by, made.country, made.source, made.tables) == (
        *(Action.START, "anna", "GB", "history"),
        ("share_holders", "share_holders_changes"),
    )
    assert order(dag, "build", Task(), source="kafka").source == "kafka"
    with pytest.raises(UsageError, match="only the histories are read from the topics"):
        order(dag, "build", Task(), source="kafka", tables="share_holders")
    by_default = order(dag, "build", Task())
    assert (by_default.country, by_default.source) == (None, "history")
    assert "position_events" in by_default.tables


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"max_changed": "some"}, "'some': expected a percentage such as 5%"),
        ({"max_changed": "101%"}, "'101%': expected a percentage such as 5%"),
        ({"tables": "stocks"}, "stocks: expected a table: position_events, "),
        ({"action": "swap"}, "'swap' is not one of"),
    ],
)
def test_a_wrong_param_is_refused_in_words(dag: Any, given: dict[str, object], why: str) -> None:
    params = read_back(dag).params.deep_merge(given)
    with pytest.raises(ParamValidationError, match=why):
        params.validate()


def test_a_swap_that_was_agreed_to_is_by_who_agreed_and_of_what_was_compared(dag: Any) -> None:
    found = {"return_value": {"rebuild": 2, "share": 0.2, "snapshot": 7}}
    agreed = {ANSWER: {"by": "ben", "why": "as ordered"}}
    made = order(dag, "swap", Task(diff=found, approval=agreed), why="GB", max_changed="1%")
    assert (made.action, made.number, made.by, made.why) == (Action.SWAP, 2, "ben", "as ordered")
    assert made.max_changed is None
    assert made.compared == 7
    without_a_word = {ANSWER: {"by": "ben", "why": None}}
    assert order(dag, "swap", Task(diff=found, approval=without_a_word), why="GB").why == "GB"


def test_a_swap_that_passes_by_itself_is_bound_to_the_share(dag: Any) -> None:
    found = {"return_value": {"rebuild": 2, "share": 0.001}}
    made = order(dag, "swap", Task(diff=found), why="GB", max_changed="1%")
    assert (made.number, made.by, made.why, made.max_changed) == (2, "anna", "GB", 0.01)


def test_a_rollback_is_of_the_rebuild_that_there_was_at_first(dag: Any) -> None:
    made = order(dag, "rollback", Task(choose={"rebuild": 3}), why="wrong country")
    assert (made.action, made.number, made.by, made.why) == (
        *(Action.ROLLBACK, 3, "anna", "wrong country"),
    )


@pytest.mark.parametrize(
    ("share", "limit", "following"),
    [
        (0.25, None, "approval"),
        (0.0, None, "approval"),
        (0.25, "24%", "approval"),
        (0.25, "25%", "swap"),
        (0.0, "0", "swap"),
    ],
)
def test_only_what_a_param_lets_pass_is_not_asked(
    dag: Any, share: float, limit: str | None, following: str
) -> None:
    check = dag.task_dict["check"].python_callable
    assert check({"share": share}, params=AS_DECLARED | {"max_changed": limit}) == following


def test_a_small_difference_is_swapped_without_asking(
    dag: Any, stand_in: StandIn, compared: None
) -> None:
    calls = stand_in({"start": [0, BUILT], "swap": [0, SWAPPED]})
    run = dag.test(run_conf={"country": "GB", "max_changed": "25%", "why": "moved"})
    assert run.state == "success"
    assert states(run) == dict.fromkeys(("choose", "build", "diff", "check"), "success") | {
        **dict.fromkeys(("swap", "report"), "success"),
        **dict.fromkeys(("approval", "drop", "rollback", "give_up"), "skipped"),
    }
    started, swapped = calls_of(calls)
    assert (started.action, started.country) == (Action.START, "GB")
    assert (swapped.action, swapped.number, swapped.max_changed) == (Action.SWAP, 2, 0.25)


def test_a_refused_swap_fails_the_run_once_and_says_what_to_do(
    dag: Any, stand_in: StandIn, compared: None
) -> None:
    stand_in({"start": [0, BUILT], "swap": [3, REFUSED]})
    assert dag.test(run_conf={"max_changed": "25%"}).state == "failed"
    with pytest.raises(AirflowFailException, match=r"30.00% differ.*Start this DAG .* rebuild 2"):
        dag.task_dict["report"].python_callable(Task(swap={"return_value": REFUSED}))


@pytest.fixture
def one_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "require_current", lambda _settings: SimpleNamespace(number=3))


def test_a_rollback_does_nothing_else(dag: Any, stand_in: StandIn, one_rebuild: None) -> None:
    calls = stand_in({"rollback": [0, {"rebuild": 3, "state": "rolled back"}]})
    run = dag.test(run_conf={"action": "rollback"})
    assert run.state == "success"
    done = [name for name, state in states(run).items() if state == "success"]
    assert sorted(done) == ["choose", "report", "rollback"]
    [made] = calls_of(calls)
    assert (made.action, made.number) == (Action.ROLLBACK, 3)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []

    def dropped(
        _installation: Installation, by: str, why: str, number: int, *, even_in_use: bool
    ) -> Any:
        found.append((by, why, number, even_in_use))
        return SimpleNamespace(number=number), ["positions.3"]

    monkeypatch.setattr(drop, "drop", dropped)
    return found


def test_a_drop_that_is_asked_for_gives_up_a_rollback_too(
    dag: Any, one_rebuild: None, seen: list[tuple[object, ...]]
) -> None:
    run = dag.test(run_conf={"action": "drop", "why": "a typo"})
    assert run.state == "success"
    assert seen == [("dag_test", "a typo", 3, True)]  # whom Airflow names as who started it
    done = [name for name, state in states(run).items() if state == "success"]
    assert sorted(done) == ["choose", "give_up", "report"]


def test_an_answer_to_drop_spares_tables_that_are_in_use_by_now(
    dag: Any, seen: list[tuple[object, ...]]
) -> None:
    answer = {ANSWER: {"by": "ben", "why": "not now"}}
    done = Task(diff={"return_value": {"rebuild": 2}}, approval=answer)
    dag.task_dict["drop"].python_callable(done)
    assert seen == [("ben", "not now", 2, False)]


def test_a_person_is_told_and_the_task_takes_no_slot_while_it_waits(
    dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(tasks, "alert_of_attention", lambda _context, lines: told.extend(lines))
    monkeypatch.setattr(
        "airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **_: None
    )
    task: Any = dag.task_dict["approval"]
    assert isinstance(task, HITLBranchOperator)
    at: Any = SimpleNamespace(
        id="x", dag_id="rebuild_tables", run_id="r", task_id="approval", map_index=-1
    )
    with pytest.raises(TaskAwaitingInput) as waits:
        task.execute({"task_instance": at, "ti": at, "task": task})
    assert waits.value.timeout.days == 7
    [line] = told
    assert "/dags/rebuild_tables/runs/r/tasks/approval/required_actions" in line


def test_that_nobody_answered_is_said_in_words(dag: Any) -> None:
    event = {"error": "The Human-in-the-loop response timeout has passed", "error_type": "timeout"}
    with pytest.raises(HITLTimeoutError, match="nobody answered within 7 days"):
        dag.task_dict["approval"].execute_complete({}, event)


def test_who_answered_is_kept(dag: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task, seen = dag.task_dict["approval"], Task()
    chosen: list[Any] = []
    monkeypatch.setattr(
        type(task),
        "do_branch",
        lambda _task, *, branches_to_execute, **_: chosen.extend(branches_to_execute),
    )
    event = {
        "chosen_options": ["Drop"],
        "params_input": {"reason": "not now"},
        "responded_at": datetime(2026, 11, 23, tzinfo=UTC),
        "responded_by_user": {"id": "7", "name": "ben"},
    }
    task.execute_complete({"ti": seen, "task": task}, event)
    assert seen.pushed == {ANSWER: {"by": "ben", "why": "not now"}}
    assert chosen == ["drop"]
