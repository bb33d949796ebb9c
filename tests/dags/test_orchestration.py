"""A Spark job as a task: what its exit code means, where its result goes, what a failure says."""

from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

from tests.dags.conftest import StandIn

FOLDER = Path(__file__).parent


def test_the_exit_code_says_whether_a_job_is_tried_again(
    submitted_stand_in: StandIn, task_environment: Path
) -> None:
    calls = submitted_stand_in(
        {
            "done": [0, {"n": 1}],
            "could_not": [1, "no broker at 127.0.0.1:1"],
            "bad_usage": [2, "no such week"],
            "needs_attention": [3, {"unknown": ["client1"]}],
            "needs_a_person_first": [3, "tombstones may have been lost"],
        }
    )
    dag = DagBag(dag_folder=FOLDER / "samples").dags["exit_codes"]
    run = dag.test()
    tasks = {task.task_id: task for task in run.get_task_instances()}

    assert {name: (task.state, task.try_number) for name, task in tasks.items()} == {
        "done": ("success", 1),
        "could_not": ("failed", 2),
        "bad_usage": ("failed", 1),
        "needs_attention": ("success", 1),
        "needs_a_person_first": ("failed", 1),
        "needs_no_spark": ("success", 1),
    }
    assert tasks["done"].xcom_pull(task_ids="done") == {"n": 1}
    assert tasks["done"].xcom_pull(task_ids="needs_attention") == {"unknown": ["client1"]}
    assert tasks["done"].xcom_pull(task_ids="needs_no_spark") == {"request": "--week"}
    assert len(calls.read_text().splitlines()) == 6
    assert list((task_environment / "results").iterdir()) == []
    alerts = (task_environment / "alerts.log").read_text()
    assert "could_not, attempt 2: stand_in ended with 1: no broker at 127.0.0.1:1\n" in alerts
    lost = "needs_a_person_first, attempt 1: stand_in ended with 3: tombstones may have been lost\n"
    assert lost in alerts
    assert "bad_usage, attempt 1: stand_in ended with 2: no such week\n" in alerts
