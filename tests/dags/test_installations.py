"""Two installations in one Airflow: what each file of a DAG defines, and whose settings count."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import Asset
from airflow.timetables.base import TimeRestriction
from shardpost_iso_weeks import IsoWeeks
from shardpost_run_request_watch import RunRequestWatch

from shardpost.checkout import CHECKOUT
from shardpost.errors import UsageError
from shardpost.orchestration.connections import of_dag, task_installation
from shardpost.settings import declared, installations, load, loading
from shardpost.spark.submit import job_environment
from tests.dags.conftest import read_back

DAGS = CHECKOUT / "dags"
STEMS = {file.stem for file in DAGS.glob("*.py")}
OWN_TOPICS = (
    "SHARE_HOLDERS",
    "WEEKLY_EMAILS",
    "DEAD_LETTERS",
    "RETRIES",
    "PARKING_LOT",
    "RUN_REQUESTS",
    "RUN_COMMANDS",
    "DECISIONS",
)
Files = Callable[..., None]


@pytest.fixture
def write(bag: DagBag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Give what writes the files of two installations, with what one has besides.

    After Airflow has loaded the plugins, which it does once in a process, with one installation.
    """
    read_back(bag.dags["weekly_email"])
    names = [
        name
        for name in task_installation().settings.environ()
        if name.startswith("SHARDPOST_") and name != "SHARDPOST_BOOTSTRAP_SERVERS"
    ]
    for name in names:
        monkeypatch.delenv(name, raising=False)

    def write(**more: str) -> None:
        loading._of_this_process.cache_clear()
        for name in ("us", "de"):
            lines = [f"SHARDPOST_HOME={tmp_path}/{name}"]
            lines += [
                f"SHARDPOST_TOPIC_{topic}={name}-{topic.lower().replace('_', '-')}"
                for topic in OWN_TOPICS
            ]
            (tmp_path / f"{name}.env").write_text("\n".join([*lines, more.get(name, ""), ""]))

    write()
    both = f"us={tmp_path}/us.env de={tmp_path}/de.env"
    monkeypatch.setenv("SHARDPOST_INSTALLATIONS", both)
    yield write
    loading._of_this_process.cache_clear()


def test_each_file_holds_a_dag_of_each_with_its_tag_and_its_assets(write: Files) -> None:
    write(us="SHARDPOST_COMPACT_SCHEDULE=5 6 * * *\nSHARDPOST_WEEKLY_SEND=Tue 07:30 UTC")
    bag = DagBag(dag_folder=DAGS)
    assert bag.import_errors == {}
    assert set(bag.dags) == {f"{name}_{stem}" for name in ("us", "de") for stem in STEMS}
    assets: dict[str, set[tuple[str, str]]] = {"us": set(), "de": set()}
    for dag_id, dag in bag.dags.items():
        name = dag_id.partition("_")[0]
        assert name in dag.tags
        assert Path(dag.fileloc) == DAGS / f"{dag_id.partition('_')[2]}.py"
        every = [of for task in dag.tasks for of in (*task.inlets, *task.outlets)]
        assets[name] |= {(one.name, one.uri) for one in every if isinstance(one, Asset)}
        condition = read_back(dag).timetable.asset_condition
        assets[name] |= {(one.name, one.uri) for _, one in condition.iter_assets()}
    for name, found in assets.items():
        names = {of for of, _ in found}
        assert names >= {f"{name}_share_holders", f"{name}_run_requests"}
        assert all(of.startswith(f"{name}_") for of in names)
    of_both = [uri for found in assets.values() for _, uri in found]
    assert len(set(of_both)) == len(of_both)
    described = {one: read_back(bag.dags[one]).timetable.description for one in bag.dags}
    assert described["us_compact_positions"] == "At 06:05"
    assert described["de_compact_positions"] == "Every 15 minutes"
    assert described["us_weekly_email"].startswith("Tuesdays 07:30")
    assert described["de_weekly_email"].startswith("Mondays 08:00")


def test_a_wrong_file_breaks_no_dag_and_fails_the_tasks_of_its_own_installation(
    write: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "SHARDPOST_COMPACT_SCHEDULE=sometimes\nSHARDPOST_FOLLOW=perhaps"
    write(us=wrong)
    bag = DagBag(dag_folder=DAGS)
    assert bag.import_errors == {}
    assert len(bag.dags) == 2 * len(STEMS)
    said = "installation us: its tasks will fail: setting SHARDPOST_COMPACT_SCHEDULE='sometimes'"
    assert said in caplog.text
    where = rf"{tmp_path}/us.env: setting .*COMPACT_SCHEDULE='sometimes'.*FOLLOW='perhaps'"
    with pytest.raises(UsageError, match=where):
        task_installation(of_dag("us_compact_positions"))
    assert task_installation(of_dag("de_compact_positions")).settings.installations == "de"
    (tmp_path / "us.env").unlink()
    assert DagBag(dag_folder=DAGS).import_errors == {}
    with pytest.raises(UsageError, match=r"us.env: cannot be read: No such file"):
        task_installation(of_dag("us_compact_positions"))


@pytest.mark.parametrize(
    ("us", "said"),
    [
        ("SHARDPOST_HOME={tmp_path}/de", "SHARDPOST_HOME: {tmp_path}/de"),
        ("SHARDPOST_TABLES={tmp_path}/de/tables", "SHARDPOST_TABLES: {tmp_path}/de/tables"),
        ("SHARDPOST_TOPIC_RETRIES=de-retries", "SHARDPOST_TOPIC_RETRIES: de-retries at "),
        ("SHARDPOST_FOREIGN_DEAD_LETTERS=de-retries", "SHARDPOST_FOREIGN_DEAD_LETTERS: de-retr"),
    ],
)
def test_what_two_may_not_share_is_refused_by_name_for_both(
    us: str, said: str, write: Files, tmp_path: Path
) -> None:
    write(us=us.format(tmp_path=tmp_path))
    said = said.format(tmp_path=tmp_path)
    with pytest.raises(UsageError, match=f"installations us and de have the same {said}"):
        task_installation(declared("us"))
    with pytest.raises(UsageError, match="installations de and us have the same SHARDPOST_"):
        task_installation(declared("de"))


def test_on_another_kafka_topics_may_have_the_same_names(write: Files) -> None:
    same = "SHARDPOST_TOPIC_RETRIES=de-retries\n"
    write(us=f"{same}SHARDPOST_BOOTSTRAP_SERVERS=b1.example:9092")
    assert task_installation(declared("us")).settings.topic("retries") == "de-retries"


def test_ids_of_connections_are_of_each(write: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    write(us="SHARDPOST_CONNECTIONS=kafka=us_kafka")
    monkeypatch.delenv("SHARDPOST_BOOTSTRAP_SERVERS", raising=False)
    for name, host in (("US_KAFKA", "us"), ("KAFKA_DEFAULT", "de")):
        extra = f'{{"bootstrap.servers":"{host}.example:9092"}}'
        connection = f'{{"conn_type":"kafka","extra":{extra}}}'
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", connection)
    found = [task_installation(one).settings.bootstrap for one in installations()]
    assert found == ["us.example:9092", "de.example:9092"]


def test_a_job_has_the_settings_of_its_installation_and_none_of_another(
    write: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDPOST_KAFKA__SASL_USERNAME", "of-all")
    write(us="SHARDPOST_COUNTRY=US\nSHARDPOST_KAFKA__SASL_USERNAME=", de="SHARDPOST_COUNTRY=DE")
    for name in ("us", "de"):
        with pytest.MonkeyPatch.context() as patch:
            installation = task_installation(declared(name))
            for variable, text in job_environment(installation).items():
                patch.setenv(variable, text)
            loading._of_this_process.cache_clear()
            of_job = load()
        assert of_job == installation.settings
        assert (of_job.country, of_job.installations) == (name.upper(), name)
        assert of_job.kafka == {"sasl.username": "of-all"}  # an empty line of a file does not count
        assert of_job.dag_id("weekly_email") == f"{name}_weekly_email"


def test_what_airflow_keeps_of_a_timetable_and_a_trigger_names_the_installation(
    write: Files,
) -> None:
    write(de="SHARDPOST_WEEKLY_FIRST=2031-W07")
    _, arguments = RunRequestWatch("de").serialize()
    assert arguments == {"installation": "de"}
    assert RunRequestWatch().serialize()[1] == {}
    firsts = [
        IsoWeeks.deserialize(IsoWeeks(installation=n).serialize())._first_of_all()
        for n in ("us", "de")
    ]
    assert [[str(week) for week in first] for first in firsts] == [[], ["2031-W07"]]


def test_a_command_acts_for_one_alone(write: Files) -> None:
    with pytest.raises(UsageError, match=r"expected one installation of .* \(us, de\), found all"):
        load()


@pytest.mark.parametrize("wrong", ["us", "us=/a us=/b", "US=/a", "us_de=/a", "us=/a de", "us,de"])
def test_a_wrong_list_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDPOST_INSTALLATIONS", wrong)
    if wrong == "us":
        assert [one.name for one in installations()] == ["us"]
        return
    with pytest.raises(UsageError, match=r"setting SHARDPOST_INSTALLATIONS='.*': expected "):
        installations()


def test_a_dag_of_none_of_them_is_refused(write: Files) -> None:
    with pytest.raises(UsageError, match=r"expected one installation of .* \(us, de\), found fr"):
        of_dag("fr_weekly_email")


def test_a_file_that_cannot_be_read_schedules_no_week(write: Files, tmp_path: Path) -> None:
    own = "SHARDPOST_WEEKLY_FIRST=2027-W05\nSHARDPOST_WEEKLY_SEND=Tue 07:30 Europe/Berlin"
    write(us=own)
    schedule = IsoWeeks("Tue 07:30 Europe/Berlin", "us")
    at_any_time = TimeRestriction(earliest=None, latest=None, catchup=False)

    def planned(schedule: IsoWeeks) -> str:
        found = schedule.next_dagrun_info(
            last_automated_data_interval=None, restriction=at_any_time
        )
        assert found is not None
        return f"{found.run_after:%Y-%m-%d %H:%M}"

    assert planned(schedule) == "2027-02-09 06:30"
    with pytest.raises(UsageError, match="SHARDPOST_WEEKLY_SEND is no longer Mon 08:00 UTC"):
        planned(IsoWeeks(installation="us"))  # of a DAG that was parsed without the file
    write(us=own.replace("W05", "W99"))
    with pytest.raises(UsageError, match="SHARDPOST_WEEKLY_FIRST"):
        planned(schedule)
    (tmp_path / "us.env").unlink()
    with pytest.raises(UsageError, match=r"us\.env: cannot be read"):
        planned(schedule)
