"""The checks of `shardpost doctor`: bounded, in parallel; none can stop another."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.waiting import answers
from shardpost.watch import audit, machine_checks, stack_checks, table_checks
from shardpost.watch.model.doctor_finding import DoctorFinding, error, ok, refused, unknown, warning

# How long one request may take, and how long a whole check.
PATIENCE_SECONDS = 2.0
CHECK_SECONDS = 10.0
MEND_SETTINGS = "correct them in the environment or in .env; .env.example has all of them"

Check = Callable[[Installation, datetime], Iterable[DoctorFinding]]

# In the order of the report.
CHECKS: dict[str, Check] = {
    "disk": machine_checks.check_disks,
    "object store": machine_checks.check_store,
    "access": machine_checks.check_access,
    "ports": stack_checks.check_ports,
    "locks": machine_checks.check_locks,
    "kafka": audit.check_kafka,
    "alerts": table_checks.check_alerts,
    "snapshot": table_checks.check_snapshot,
    "mail server": stack_checks.check_mail_server,
    "spark": stack_checks.check_spark,
    "airflow": stack_checks.check_airflow,
}


def examine(load: Callable[[], Installation], now: datetime) -> list[DoctorFinding]:
    """Return the findings of all checks; starts and changes nothing.

    `load` opens it. Where the settings are wrong, only the machine is checked.
    """
    found = bounded({"machine": machine_checks.check_machine})
    try:
        installation = load()
    except ShardpostError as problem:
        first = "not checked: the settings are wrong"
        wrong = refused("settings", problem, MEND_SETTINGS)
        return [*found, wrong, *(unknown(name, first) for name in CHECKS)]
    found.append(
        ok("settings", f"all are known and valid; SHARDPOST_HOME is {installation.files.home}")
    )
    hasty = impatient(installation)
    checks = {name: partial(check, hasty, now) for name, check in CHECKS.items()}
    return [*found, *bounded(checks)]


def impatient(installation: Installation) -> Installation:
    """Return the installation with short timeouts."""
    return installation.having(kafka_timeout=PATIENCE_SECONDS, smtp_timeout=PATIENCE_SECONDS)


def bounded(
    checks: Mapping[str, Callable[[], Iterable[DoctorFinding]]], seconds: float = CHECK_SECONDS
) -> list[DoctorFinding]:
    """Run checks in parallel; return their findings in order, within `seconds`."""
    found: dict[str, list[DoctorFinding]] = {name: [] for name in checks}
    running = [partial(_run, name, check, found[name]) for name, check in checks.items()]
    ended = {number for number, _ in answers(running, seconds)}
    for number, name in enumerate(checks):
        if number not in ended:
            said = f"the check did not finish within {seconds:g} s"
            cure = "run `shardpost doctor` again when it is idle"
            found[name].append(warning(name, said, "an answer", cure))
    return [one for of_check in found.values() for one in of_check]


def _run(
    name: str, check: Callable[[], Iterable[DoctorFinding]], found: list[DoctorFinding]
) -> None:
    """Add the findings of a check one by one: what there is counts if it hangs."""
    try:
        for finding in check():
            found.append(finding)  # noqa: PERF402 - one by one
    except ShardpostError as problem:
        found.append(refused(name, problem))
    except OSError as problem:
        cure = "run it as the user who runs Shardpost, and check the disk"
        found.append(error(name, str(problem), "readable files", cure))
    except Exception as problem:
        said = f"the check failed: {type(problem).__name__}: {problem}"
        found.append(warning(name, said, "the check to finish", "report it as a bug"))
