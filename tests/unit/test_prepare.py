"""What a run of the weekly e-mail refuses before it freezes or mails anything; no JVM."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER, IncompleteLook
from shardpost.errors import ShardpostError, UsageError
from shardpost.locks.locks import LockedError
from shardpost.locks.refused_runs import refusals
from shardpost.settings import Settings
from shardpost.spark import submit
from shardpost.topics.creation import apply_topics
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email import week_state
from shardpost.weekly_email.email_job import EmailRequest
from shardpost.weekly_email.email_run import prepare, run, why_skip
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.prepared_week import PreparedWeek
from shardpost.weekly_email.week_state import WeekState
from tests.support import written_weeks
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.email_requests import email_request, preview
from tests.support.histories import snapshot
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.written_weeks import begin, commit_row, hold, look

WEEK = IsoWeek(2026, 47)
NOW = WEEK.end + timedelta(hours=8)
EARLY = WEEK.start + timedelta(days=1)
EVERY_MODE = [(), ("--dry-run",), ("--freeze-only",), ("--freeze-only", "--dry-run")]
REAL_MODES = [(), ("--freeze-only",)]


def freeze(settings: Settings) -> None:
    """Have the week begun and frozen already, so that no run computes its audience."""
    begin(settings, WEEK, NOW)
    commit_row(settings, FrozenWeek(str(WEEK), "x", 1, WEEK.end, NOW, 2, 10, Rule("US")))


def request(*arguments: str, now: datetime = NOW) -> EmailRequest:
    return email_request(WEEK, *arguments, now=now)


def refused(settings: Settings, *arguments: str, now: datetime = NOW) -> str:
    with pytest.raises(ShardpostError) as raised:
        prepared(settings, *arguments, now=now)
    return str(raised.value)


def prepared(settings: Settings, *arguments: str, now: datetime = NOW) -> PreparedWeek:
    at = installed(settings)
    return prepare(at, request(*arguments, now=now), WeekState(at, WEEK))


def test_early_is_as_of_now_or_of_what_the_snapshot_knows_if_that_is_earlier(at: Settings) -> None:
    look(at, EARLY)
    assert prepared(at, "--early", now=EARLY).as_of == EARLY
    assert prepared(at, "--early", now=EARLY + timedelta(minutes=2)).as_of == EARLY
    look(at, EARLY + timedelta(minutes=1))
    assert prepared(at, "--early", now=EARLY).as_of == EARLY
    assert prepared(at, "--early", now=EARLY).frozen is None


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_another_country_than_that_of_the_snapshot_is_refused_unless_it_is_meant(
    at: Settings, mode: tuple[str, ...]
) -> None:
    look(at, EARLY)
    of_none = at.model_copy(update={"country": "us"})
    with pytest.raises(UsageError, match="country us: snapshot 1 is for country US"):
        prepared(of_none, "--early", *mode, now=EARLY)
    meant = replace(request("--early", *mode, now=EARLY), country_changed=True)
    changed = installed(of_none)
    assert prepare(changed, meant, WeekState(changed, WEEK)).snapshot.rule == Rule("US")


def test_a_run_that_looks_says_for_which_drop_the_freeze_would_be_refused(at: Settings) -> None:
    clients = [f"client{number}" for number in range(12)]
    written_weeks.freeze(at, WEEK.previous, clients, WEEK.start)
    begin(at, WEEK, WEEK.end)
    hold(at, clients[:5], {client: f"{client}@x.example" for client in clients[:4]}, NOW)
    code, found = run(request("--freeze-only", "--dry-run"), installed(at))
    assert (code, found["recipients"], len(found["groups"])) == (0, None, 1)
    assert (
        "2026-W47 after 2026-W46: recipients fall from 12 to 5, recipients with an address fall"
        " from 12 to 4," in found["would_be_refused"]
    )
    accepted = replace(request("--freeze-only", "--dry-run"), accept_drop=True)
    assert "would_be_refused" not in run(accepted, installed(at))[1]


def test_a_mistyped_week_of_years_ago_is_refused_and_does_not_count_as_begun(at: Settings) -> None:
    hold(at, ["client1"], {}, NOW)
    of = replace(request(), week=OLD)
    with pytest.raises(UsageError, match="week 2020-W47: no client held stock"):
        prepare(installed(at), of, WeekState(installed(at), OLD))
    assert week_state.list_marks(installed(at).tables) == []


def test_the_jobs_of_one_early_run_are_as_of_one_instant(at: Settings) -> None:
    now = EARLY + timedelta(minutes=2)
    look(at, EARLY)
    listed = prepared(at, "--early", "--freeze-only", now=now).as_frozen(at.shards_per_task)
    look(at, now)
    assert prepared(at, "--early", now=now).as_of == now
    assert prepared(at, "--early", "--as-of", listed["as_of"], now=now).as_of == EARLY


def test_a_cleared_job_of_an_early_run_is_checked_by_the_time_it_runs_at(at: Settings) -> None:
    look(at, EARLY)
    as_of = ("--early", "--as-of", EARLY.isoformat())
    late = EARLY + timedelta(seconds=at.mail_snapshot_age + 1)
    assert "clients may have unsubscribed since" in refused(at, *as_of, now=late)
    look(at, NOW)
    assert "--early is for a week still running" in refused(at, *as_of)


def test_early_needs_a_snapshot_of_the_week(at: Settings) -> None:
    look(at, WEEK.start - timedelta(seconds=1))
    said = refused(at, "--early", now=WEEK.start + timedelta(seconds=1))
    assert "run `shardpost compact` first" in said


@pytest.mark.parametrize("mode", REAL_MODES)
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_snapshot_that_does_not_know_who_has_unsubscribed_lately_is_refused(
    at: Settings, mode: tuple[str, ...], is_frozen: bool
) -> None:
    look(at, NOW)
    if is_frozen:
        freeze(at)
    late = NOW + timedelta(seconds=at.mail_snapshot_age + 1)
    said = "clients may have unsubscribed since then: run `shardpost compact` first"
    assert said in refused(at, *mode, now=late)
    assert (FrozenWeeks(installed(at).tables).find(WEEK) is not None) == is_frozen
    assert len(week_state.list_marks(installed(at).tables)) == is_frozen
    assert prepared(at, "--dry-run", now=late)
    patient = at.model_copy(update={"mail_snapshot_age": 86_400})
    if is_frozen:
        assert prepared(patient, *mode, now=late).frozen
        assert prepared(at, *mode, now=late - timedelta(seconds=1)).frozen


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_snapshot_of_the_future_covers_nothing(
    at: Settings, mode: tuple[str, ...], is_frozen: bool
) -> None:
    if is_frozen:
        freeze(at)
    look(at, NOW + timedelta(days=8))
    with pytest.raises(ShardpostError, match=r"clock says 2026-11-23 08:00 UTC: .* compact`$"):
        prepared(at, *mode)
    assert len(week_state.list_marks(installed(at).tables)) == is_frozen
    look(at, NOW + timedelta(minutes=4))  # clocks differ a little
    assert prepared(at, "--dry-run")


def test_a_snapshot_that_lacks_what_an_open_transaction_hides_says_so(at: Settings) -> None:
    look(at, NEVER)
    assert "was never confirmed to have all records of its inputs" in refused(at)
    before = WEEK.end - timedelta(hours=1)
    hidden = IncompleteLook(NOW, {}, read_at=NOW)
    seen = replace(snapshots.current(installed(at).tables), looked_at=before, incomplete=hidden)
    snapshots.update_looked_at(installed(at).tables, seen)
    with pytest.raises(
        ShardpostError, match=r"has the inputs as of 2026-11-22 23:00 UTC \(later records .* open"
    ):
        prepared(at)


def test_the_first_real_run_of_a_week_marks_the_ledger_and_a_dry_one_does_not(
    at: Settings,
) -> None:
    look(at, EARLY)
    for mode in (("--dry-run",), ("--freeze-only", "--dry-run")):
        prepared(at, "--early", *mode, now=EARLY)
    assert week_state.list_marks(installed(at).tables) == []
    prepared(at, "--early", now=EARLY)
    prepared(at, "--early", now=EARLY)
    assert [mark.week for mark in week_state.list_marks(installed(at).tables)] == [str(WEEK)]


def test_early_mails_mark_the_ledger_for_the_run_after_the_weeks_end(kafka: MemoryKafka) -> None:
    look(kafka.settings, EARLY)
    prepared(kafka.settings, "--early", now=EARLY)
    kafka.broker.delete_topic("weekly-emails")
    apply_topics(installed(kafka.settings))
    look(kafka.settings, NOW)
    assert "week 2026-W47: the ledger (topic weekly-emails)" in refused(kafka.settings)


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_ledger_that_was_recreated_stops_every_mode_before_the_freeze(
    kafka: MemoryKafka, mode: tuple[str, ...]
) -> None:
    look(kafka.settings, NOW)
    freeze(kafka.settings)
    prepared(kafka.settings)
    kafka.broker.delete_topic("weekly-emails")
    apply_topics(installed(kafka.settings))
    assert "deleted and created again" in refused(kafka.settings, *mode)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"mail_from": "weekly@shardpost.example"}, "SHARDPOST_MAIL_FROM"),
        ({"unsubscribe_url": "https://shardpost.example/"}, "SHARDPOST_UNSUBSCRIBE_URL"),
        ({"smtp_user": "anna"}, "SHARDPOST_SMTP_TLS"),
    ],
)
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_settings_that_no_remote_server_may_be_used_with_stop_every_mode(
    at: Settings, mode: tuple[str, ...], given: dict[str, str], named: str
) -> None:
    look(at, NOW)
    freeze(at)
    remote = {
        "smtp_host": "mail.bank.com",
        "mail_from": "news@bank.com",
        "unsubscribe_url": "https://bank.com/{client}",
    }
    assert prepared(at.model_copy(update=remote), *mode)
    with pytest.raises(UsageError, match=f"setting {named}"):
        prepared(at.model_copy(update=remote | given), *mode)


def test_a_frozen_week_lists_its_groups_and_one_that_is_not_has_no_number_of_clients(
    at: Settings,
) -> None:
    hold(at, ["client1"], {}, NOW)
    assert run(request("--freeze-only", "--dry-run"), installed(at))[1]["recipients"] is None
    freeze(at)
    for per_task, groups in ((2, ["0-1"]), (1, ["0", "1"])):
        own = installed(at.model_copy(update={"shards_per_task": per_task}))
        code, document = run(request("--freeze-only"), own)
        assert (code, document["recipients"], document["groups"]) == (0, 10, groups)


def test_a_scheduled_run_skips_what_is_not_its_and_says_why(at: Settings) -> None:
    def skipped(now: datetime = NOW) -> str:
        asked = request("--freeze-only", "--scheduled", now=now)
        return str(why_skip(installed(at), asked, WeekState(installed(at), WEEK)))

    assert "no snapshot" in skipped()
    first = replace(snapshot(1, {}), looked_at=NOW, committed_at=WEEK.end)
    snapshots.commit(installed(at).tables, first)
    assert "no snapshot" in skipped()
    snapshots.commit(installed(at).tables, replace(first, number=2, committed_at=WEEK.start))
    late = WEEK.end + timedelta(days=30)
    assert (skipped(), "3 days" in skipped(late)) == ("None", True)
    assert FrozenWeeks(installed(at).tables).find(WEEK) is None
    freeze(at)
    assert skipped(late) == "None"


def test_a_run_beside_another_of_the_same_shards_is_refused(at: Settings) -> None:
    look(at, NOW)
    freeze(at)
    with WeekState(installed(at), WEEK).locked([1]), pytest.raises(LockedError):
        run(request(), installed(at))


LAST = "2020-W47"
OLD = IsoWeek.parse(LAST)


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("spark-submit was started")

    monkeypatch.setattr(submit, "submit", never)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--week", "2026-W60"), 2, "week 2026-W60: there is no such week"),
        (("--week", LAST, "--shards", "x"), 2, "shards 'x': expected a form such as"),
        (("--week", LAST, "--shards", "-x"), 2, "shards '-x': expected a form such as"),
        (("--week", LAST, "--shards", "3-1"), 2, "expected the lower number first"),
        (("--week", LAST, "--shards", "0-99"), 2, "shards '0-99': expected 0 to 1, found 0-99"),
        (("--week", LAST, "--early"), 1, "--early is for a week still running"),
        (("--week", "9000-W01"), 1, "has not begun"),
        (("--week", LAST), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "failed"), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "Suppressed"), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "sent"), 2, "--again"),
    ],
)
def test_what_can_be_known_without_spark_is_refused_without_it(
    shardpost: CommandLine, arguments: tuple[str, ...], code: int, said: str, dry: tuple[str, ...]
) -> None:
    found, out, err = shardpost.answer("email", *arguments, *dry)
    assert (found, out, said in err) == (code, "", True), err
    noted = refusals(installed(shardpost.settings).files, datetime.now(UTC))
    assert {*noted} == ({"weekly_email"} if "compact" in said and not dry else set())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"MAIL_FROM": "weekly@shardpost.example"}, "SHARDPOST_MAIL_FROM"),
        ({"UNSUBSCRIBE_URL": "https://x.example/{client}"}, "SHARDPOST_UNSUBSCRIBE_URL"),
        ({"MAIL_TEMPLATES": "/no/such/templates"}, "SHARDPOST_MAIL_TEMPLATES"),
    ],
)
def test_a_setting_that_stops_every_run_is_on_record_until_it_is_corrected(
    shardpost: CommandLine, given: dict[str, str], named: str
) -> None:
    """And the same command with a mistyped week leaves nothing."""
    good = {"SMTP_HOST": "mail.bank.com", "MAIL_FROM": "news@bank.com"}
    good["UNSUBSCRIBE_URL"] = "https://bank.com/{client}"
    environ = {f"SHARDPOST_{name}": text for name, text in (good | given).items()}
    here = CommandLineHere(shardpost.settings.environ() | environ)

    def noted() -> list[str]:
        found = refusals(installed(shardpost.settings).files, datetime.now(UTC))
        return [one.why for one in found.values()]

    here.refused("email", "--week", "2026-W60", code=2)
    assert noted() == []
    here.refused("email", "--week", LAST, code=2)
    [why] = noted()
    assert named in why


def test_bad_shards_are_refused_without_kafka_too(settings: Settings) -> None:
    shardpost = CommandLineHere(settings.environ())
    said = shardpost.refused("email", "--week", LAST, "--shards", "x", code=2)
    assert "expected a form such as" in said
    said = shardpost.refused("email", "--week", LAST, "--take-over", "--dry-run", code=2)
    assert "--take-over cannot be used with --dry-run" in said


def pruned(settings: Settings, history_from: datetime) -> None:
    """Commit a snapshot of now whose histories were pruned up to a time."""
    made = replace(snapshot(1, {}), looked_at=datetime.now(UTC), history_from=history_from)
    snapshots.commit(installed(settings).tables, made)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_week_whose_history_was_pruned_and_that_is_not_frozen_is_refused(
    at: Settings, shardpost: CommandLine, dry: tuple[str, ...]
) -> None:
    pruned(at, OLD.end + timedelta(milliseconds=1))
    code, out, err = shardpost.answer("email", "--week", LAST, *dry)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert (
        "week 2020-W47 is not frozen, and its holders as of then can no longer be computed" in err
    )
    assert "snapshot 1 has the whole history from 2020-11-23T00:00:00.001000+00:00" in err
    assert "SHARDPOST_HISTORY_DAYS" in err
    assert week_state.list_marks(installed(at).tables) == []


@pytest.mark.parametrize("mode", ["--dry-run", "--freeze-only"])
def test_a_week_is_mailed_whose_history_is_whole_or_that_was_frozen_before(
    at: Settings, mode: str
) -> None:
    request = email_request(OLD, mode, now=datetime.now(UTC))
    pruned(at, OLD.end)
    assert preview(request, installed(at)).frozen is None
    later = replace(
        snapshots.current(installed(at).tables), number=2, history_from=OLD.end + timedelta(days=9)
    )
    snapshots.commit(installed(at).tables, later)
    begin(at, OLD, OLD.end)
    frozen = written_weeks.freeze(at, OLD, ["c1"], OLD.end)
    assert preview(request, installed(at)).frozen == frozen
