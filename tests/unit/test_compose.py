"""docker-compose.yml and the Dockerfile, as Compose and hadolint read them; no Docker runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardpost.checkout import CHECKOUT
from shardpost.settings import load
from shardpost.settings.loading import read_dot_env
from tests.conftest import environ
from tests.support.docker_engine import Engine, call

FILE = CHECKOUT / "docker-compose.yml"
TEXT = FILE.read_text()
PAGE = (CHECKOUT / "docs" / "cluster.md").read_text()
ASKED = re.compile(r"\$\{(\w+)")
OF_KAFKA = {"kafka-1", "kafka-2", "kafka-3"}


def run(*command: str, cwd: Path = CHECKOUT) -> str:
    """Run a command that the environment has; return what it says on standard output."""
    found = shutil.which(command[0], path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, f"no {command[0]}: run make setup"
    variables = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    done = subprocess.run(
        [found, *command[1:]], cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the compose file, and with the .env that the script writes."""
    folder = tmp_path_factory.mktemp("compose")
    (folder / "scripts").mkdir()
    for name in ("docker-compose.yml", "Dockerfile", "scripts/cluster-env"):
        shutil.copy(CHECKOUT / name, folder / name)
    run("bash", "scripts/cluster-env", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def system(checkout: Path) -> dict[str, Any]:
    """Give what Compose makes of the file, with all profiles."""
    found: dict[str, Any] = json.loads(
        run("docker-compose", "config", "--format", "json", cwd=checkout)
    )
    return found


@pytest.fixture
def services(system: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give {service: what it is}."""
    found: dict[str, dict[str, Any]] = system["services"]
    return found


def is_one_shot(service: dict[str, Any]) -> bool:
    return bool(service.get("restart") == "no")


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    assert run("hadolint", "Dockerfile") == ""


def test_without_a_choice_all_services_are_meant_and_a_profile_chooses_kafka_alone(
    checkout: Path, services: dict[str, Any]
) -> None:
    assert services.keys() > OF_KAFKA | {"mailpit", "store", "postgres", "airflow-scheduler"}

    def of(*profiles: str) -> set[str]:
        chosen = [part for profile in profiles for part in ("--profile", profile)]
        return set(run("docker-compose", *chosen, "config", "--services", cwd=checkout).split())

    assert of("kafka") == OF_KAFKA
    assert of("kafka", "mail") == OF_KAFKA | {"mailpit"}


def test_nothing_is_published_but_on_loopback(services: dict[str, Any]) -> None:
    published = [port for one in services.values() for port in one.get("ports", ())]
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}
    assert len({port["published"] for port in published}) == len(published)
    assert not any(one.get("network_mode") or one.get("privileged") for one in services.values())


def test_each_service_says_whether_it_is_healthy_and_comes_again_or_runs_to_its_end(
    services: dict[str, Any],
) -> None:
    assert {name for name, one in services.items() if is_one_shot(one)} == {"airflow-init"}
    for name, one in services.items():
        if is_one_shot(one):
            continue
        assert one["restart"] == "unless-stopped", name
        assert one["healthcheck"]["test"][0] == "CMD", name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert one["logging"]["options"].keys() == {"max-size", "max-file"}, name


def test_a_service_waits_until_what_it_needs_is_healthy_or_has_run_to_its_end(
    services: dict[str, Any],
) -> None:
    for name, one in services.items():
        for needed, how in one.get("depends_on", {}).items():
            ends = is_one_shot(services[needed])
            expected = "service_completed_successfully" if ends else "service_healthy"
            assert how["condition"] == expected, (name, needed)


def test_images_are_pinned_to_a_release_and_ours_to_this_one(services: dict[str, Any]) -> None:
    images = {one["image"] for one in services.values()}
    tags = {image.partition(":")[2] for image in images}
    assert all(re.fullmatch(r"v?\d+(\.\d+){1,2}(-bookworm)?", tag) for tag in tags), images
    project = (CHECKOUT / "shardpost" / "__init__.py").read_text()
    release = re.search(r'__version__ = "(.+)"', project)
    assert release
    assert f"shardpost:{release[1]}" in images
    broker = (CHECKOUT / "ivy" / "broker.xml").read_text()
    kafka = next(image for image in images if image.startswith("apache/kafka:"))
    assert f'name="kafka_2.13" rev="{kafka.partition(":")[2]}"' in broker


def test_data_is_in_named_volumes_and_a_broker_has_one_of_its_own(
    system: dict[str, Any], services: dict[str, Any]
) -> None:
    mounted = [mount for one in services.values() for mount in one.get("volumes", ())]
    assert {mount["type"] for mount in mounted} == {"volume"}
    assert {mount["source"] for mount in mounted} == system["volumes"].keys()
    for name in OF_KAFKA:
        assert [(m["source"], m["target"]) for m in services[name]["volumes"]] == [
            (name, services[name]["environment"]["KAFKA_LOG_DIRS"])
        ]


def test_the_brokers_are_one_cluster_that_loses_nothing_with_one_of_them(
    services: dict[str, Any],
) -> None:
    brokers = [services[name]["environment"] for name in sorted(OF_KAFKA)]
    own = {"KAFKA_NODE_ID", "KAFKA_ADVERTISED_LISTENERS"}
    shared = [{name: one[name] for name in one.keys() - own} for one in brokers]
    assert shared[0] == shared[1] == shared[2]
    voters = [f"{one['KAFKA_NODE_ID']}@kafka-{one['KAFKA_NODE_ID']}:9093" for one in brokers]
    assert ",".join(voters) == shared[0]["KAFKA_CONTROLLER_QUORUM_VOTERS"]
    replicas = {name: value for name, value in shared[0].items() if "REPLICATION_FACTOR" in name}
    assert set(replicas.values()) == {"3"}
    assert len(replicas) == 3
    isr = {name: value for name, value in shared[0].items() if name.endswith(("_ISR", "_REPLICAS"))}
    assert set(isr.values()) == {"2"}
    assert services["airflow-scheduler"]["environment"]["SHARDPOST_REPLICATION_FACTOR"] == "3"


def test_no_secret_stands_in_the_file_and_the_script_makes_each(checkout: Path) -> None:
    asked = set(ASKED.findall(TEXT))
    made = dict(line.split("=", 1) for line in (checkout / ".env").read_text().splitlines())
    mail = {"MAIL_FROM", "UNSUBSCRIBE_SECRET", "UNSUBSCRIBE_URL"}
    own = {"COMPOSE_PROFILES", *(f"SHARDPOST_{name}" for name in mail)}
    assert made.keys() == asked | own
    assert "{token}" in made["SHARDPOST_UNSUBSCRIBE_URL"]
    assert all(value for value in made.values())
    secret = re.compile(r"^\s*\w*(?:PASSWORD|SECRET|KEY): (?!\$\{)(.+)$", re.MULTILINE)
    assert secret.findall(TEXT) == []
    for name in made:
        assert f"`{name}`" in PAGE, f"docs/cluster.md does not say what {name} is"


def test_the_script_keeps_what_is_there_and_the_file_private(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(CHECKOUT / "scripts" / "cluster-env", tmp_path / "scripts")
    env = tmp_path / ".env"
    env.write_text("SHARDPOST_COUNTRY=DE\nCLUSTER_POSTGRES_PASSWORD=mine")
    env.chmod(0o644)
    run("bash", "scripts/cluster-env", cwd=tmp_path)
    first = env.read_text()
    assert first.startswith("SHARDPOST_COUNTRY=DE\nCLUSTER_POSTGRES_PASSWORD=mine\n")
    assert first.count("CLUSTER_POSTGRES_PASSWORD") == 1
    assert env.stat().st_mode & 0o777 == 0o600
    run("bash", "scripts/cluster-env", cwd=tmp_path)
    assert env.read_text() == first
    assert read_dot_env(env).problems == []


def test_the_settings_of_the_containers_are_valid(services: dict[str, Any]) -> None:
    given = services["airflow-scheduler"]["environment"]
    settings = load(environ() | given)
    assert settings.replication_factor == 3
    assert json.loads(given["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == settings.spark_master


def test_a_compaction_and_a_sweep_find_executors_beside_the_two_jobs_that_mail_a_week(
    services: dict[str, Any],
) -> None:
    lines = (CHECKOUT / "deploy" / "spark.conf").read_text().splitlines()
    conf = dict(line.split() for line in lines if line.startswith("spark."))
    executors = int(conf["spark.cores.max"]) // int(conf["spark.executor.cores"])
    mebibytes = int(conf["spark.executor.memory"].removesuffix("m"))
    workers = [one["command"] for name, one in services.items() if name.startswith("spark-worker")]
    for command in workers:
        given = dict(pairwise(command))
        at_once = int(given["--cores"]) // int(conf["spark.executor.cores"])
        at_once = min(at_once, int(given["--memory"].removesuffix("g")) * 1024 // mebibytes)
        assert at_once * len(workers) >= 4 * executors


def test_what_the_image_is_made_of_is_in_its_context_and_nothing_else() -> None:
    ignored = (CHECKOUT / ".dockerignore").read_text().splitlines()
    given = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    copied = set[str]()
    for line in (CHECKOUT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied.update(line.split()[1:-1])
    assert {name.rstrip("/") for name in copied} - {"shardpost/__init__.py"} == given
    assert yaml.safe_load(TEXT)["x-image"]["build"] == "."


def test_the_values_for_kubernetes_are_of_this_image_and_name_settings_that_there_are() -> None:
    values = yaml.safe_load((CHECKOUT / "deploy" / "helm-values.yaml").read_text())
    assert f"shardpost:{values['images']['airflow']['tag']}" in TEXT
    assert f"apache-airflow=={values['airflowVersion']}" in (
        CHECKOUT / "requirements.in"
    ).read_text().split("\n")
    dockerfile = (CHECKOUT / "Dockerfile").read_text()
    for name in ("dags_folder", "plugins_folder"):
        assert f"AIRFLOW__CORE__{name.upper()}={values['config']['core'][name]}" in dockerfile
    assert f"--uid {values['uid']} --gid {values['gid']}" in dockerfile
    named = [one["name"] for one in values["env"]] + [one["envName"] for one in values["secret"]]
    assert len(set(named)) == len(named)
    assert {name for name in named if name.startswith("SHARDPOST_")} <= environ().keys()
    for one in values["secret"]:
        assert f"--from-literal={one['secretKey']}=" in PAGE


def test_the_values_for_kubernetes_can_send_and_lead_executors_to_the_pod_of_the_driver() -> None:
    values = yaml.safe_load((CHECKOUT / "deploy" / "helm-values.yaml").read_text())
    given = {one["name"]: one["value"] for one in values["env"]}
    secrets = {one["envName"]: "1:0123456789abcdef" for one in values["secret"]}
    settings = load(environ() | given | secrets)
    assert settings.mail_from
    assert "{token}" in settings.unsubscribe_url
    assert settings.unsubscribe_secret
    [host] = yaml.safe_load(values["extraEnv"])
    assert host["name"] == "SPARK_LOCAL_HOSTNAME"
    assert host["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_a_kept_folder_of_images_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    first, other = Engine(tmp_path, "first"), Engine(tmp_path, "other")
    with first.alone(), pytest.raises(pytest.fail.Exception, match="one in use"), other.alone():
        pass
    with other.alone():
        pass


def test_a_command_that_asks_for_attention_is_no_failure_where_that_is_expected() -> None:
    assert call("bash", "-c", "echo found; exit 3", ends=(0, 3)) == "found\n"
    with pytest.raises(AssertionError, match="exit code 3"):
        call("bash", "-c", "exit 3")
