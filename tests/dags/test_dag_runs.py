"""Runs that the page starts: by Airflow's own code, on its own database."""

from pathlib import Path
from typing import Any

import pytest

from shardpost.errors import ShardpostError, UsageError
from shardpost.page import access
from shardpost.settings import load
from tests.support.page_client import page_client


@pytest.fixture(scope="module")
def known(bag: Any) -> None:
    """Let Airflow know our DAGs, as its DAG processor does."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    sync_bag_to_db(bag, "dags-folder", None)


def pause(dag: str, *, is_paused: bool) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag).values(is_paused=is_paused))


@pytest.mark.usefixtures("known")
def test_a_run_is_started_by_its_user_with_the_reason_and_params_that_the_dag_accepts() -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    conf = {"week": "2026-W46", "dry_run": True}
    before = {run.run_id for run in DagRun.find(dag_id="weekly_email")}
    pause("weekly_email", is_paused=True)
    with pytest.raises(ShardpostError, match="is paused in Airflow"):
        access.start_run("eve", "weekly_email", conf, "to look")
    pause("weekly_email", is_paused=False)
    run_id = access.start_run("eve", "weekly_email", conf, "to look\nonce")
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.run_id == run_id)).one()
        assert (run.conf, run.triggering_user_name, run.state) == (conf, "eve", "queued")
        assert run.note == "eve: to look once"
    with pytest.raises(UsageError, match="there is no such week in 2025"):
        access.start_run("eve", "weekly_email", {"week": "2025-W53"}, "to look")
    with pytest.raises(UsageError, match="again"):
        access.start_run("eve", "weekly_email", {"again": "EVERYBODY"}, "to look")
    with pytest.raises(ShardpostError, match="Airflow has no DAG other"):
        access.start_run("eve", "other", {}, "to look")
    assert {run.run_id for run in DagRun.find(dag_id="weekly_email")} - before == {run_id}
    assert access.unfinished_run("weekly_email") == run_id
    assert access.unfinished_run("rebuild_tables") is None


@pytest.mark.usefixtures("known")
def test_the_form_of_a_send_starts_the_run_that_it_describes(
    task_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models.dagrun import DagRun

    from shardpost.page import access

    pause("weekly_email", is_paused=False)
    settings = load({"SHARDPOST_HOME": str(task_environment), "SHARDPOST_KAFKA_PORT": "1"})
    before = {run.run_id for run in DagRun.find(dag_id="weekly_email")}
    asked = {"week": "2026-W45", "shards": "0-1", "again": "FAILED", "dry_run": "on"}
    with page_client(settings, monkeypatch, "eve") as page:
        token = access.form_token("eve", "/shardpost/emails/start")

        def send(**fields: str) -> int:
            return page.post("emails/start", {"token": token, **fields}).status_code

        assert send(**asked, why=" ") == 400
        assert send(**asked | {"week": "2026-W54"}, why="to look") == 400
        assert send(**asked | {"shards": "1-0"}, why="to look") == 400
        assert send(**asked | {"again": "ALL"}, why="to look") == 400
        assert {run.run_id for run in DagRun.find(dag_id="weekly_email")} == before
        assert send(**asked, why="to look") == 503  # it is started; Kafka is not there for the page
    [run] = [run for run in DagRun.find(dag_id="weekly_email") if run.run_id not in before]
    assert run.conf == {**asked, "dry_run": True}
    assert run.triggering_user_name == "eve"
