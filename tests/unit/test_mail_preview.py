"""One client's mail as it was frozen or would be sent, shown by the command without a JVM."""

import json
import webbrowser
from datetime import datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.mail_preview import MailPreview, preview
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_decisions import Outcome, Resolution, resolve
from shardpost.weekly_email.week_status import rows_of_begun
from tests.support.command_line import CommandLineHere
from tests.support.handed_over import Run
from tests.support.installed import installed
from tests.support.week_tables import World
from tests.support.written_weeks import begin, freeze, record

WEEK = IsoWeek(2026, 45)
NOW, MINUTE = WEEK.end + timedelta(hours=8), timedelta(minutes=1)
CLIENT = '"><script>alert(1)</script>'


@pytest.fixture
def world(at: Settings) -> World:
    world = World(at)
    world.position("9", "c1")
    world.position("10", "c1", amount="1234.5", exchange="NYSE")
    world.position("2", "c1", exchange="LON")
    world.position("3", CLIENT)
    world.position("4", "later", at=WEEK.end)
    world.position("5", "off")
    world.position("6", "nobody")
    record = {"Client": "c1", "Language": "de-AT", "Subscribed": True}
    world.client("c1", name="Ann", value=json.dumps(record).encode())
    world.client(CLIENT, email="x@x.example", name="\u202eX", value=b'{"Language": ["de"]}')
    world.client("off", subscribed=False, value=b'{"Language": 5}')
    world.commit(looked_at=NOW)
    return world


def shown(world: World, client: str, **more: object) -> MailPreview:
    return preview(installed(world.settings.model_copy(update=more)), client, WEEK, now=NOW)


def test_of_a_week_that_is_not_frozen_it_is_what_a_run_of_now_would_send(world: World) -> None:
    found = shown(world, "c1")
    assert (found.is_frozen, found.snapshot, found.as_of) == (False, 1, WEEK.end)
    assert found.subject == "Your US stock in week 2026-W45: 2 positions"
    assert list(found.headers)[:3] == ["From", "To", "Subject"]
    assert found.headers["To"] == "Ann <c1@x.example>"
    assert "9         AAPL       100  NASDAQ\n10        AAPL    1234.5  NYSE\n" in found.text
    assert "<td>10</td><td>AAPL</td>" in found.html
    assert (found.language, found.remark) == (None, None)
    early = preview(installed(world.settings), "c1", WEEK.next, now=NOW)
    assert "as of Monday 2026-11-09 08:00 UTC," in early.text
    with pytest.raises(ShardpostError, match="later holds no US stock at snapshot 1"):
        shown(world, "later")


def test_of_a_frozen_week_it_is_that_of_its_audience(world: World) -> None:
    before = shown(world, "c1")
    freeze(world.settings, WEEK, ["c1", "gone"], NOW)
    found = shown(world, "c1")
    assert (found.is_frozen, found.remark) == (True, None)
    assert "1         1            1  1" in found.text
    assert found.headers["To"] == "c1 <c1@x.example>"
    assert found.headers["Message-ID"] == before.headers["Message-ID"]
    assert "not subscribed" in str(shown(world, "gone").remark)
    with pytest.raises(ShardpostError, match="off is not in its audience"):
        shown(world, "off")
    FrozenWeeks(installed(world.settings).tables).mark_erased(WEEK, NOW)
    with pytest.raises(ShardpostError, match="was erased"):
        shown(world, "c1")


def run(settings: Settings, now: datetime = NOW, *, again: bool = False) -> Run:
    return Run(settings, WEEK, "c1", now, again)


def as_sent(settings: Settings, now: datetime = NOW) -> MailPreview:
    return preview(
        installed(settings),
        "c1",
        WEEK,
        rows_of_begun(installed(settings), WEEK, "c1", NOW),
        now=now,
    )


def require_same(found: MailPreview, mail: Mail) -> None:
    assert found.look_since is not None
    sent = message_from_bytes(mail.content, policy=default)
    for name in ("From", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe"):
        assert str(sent[name]) == found.headers[name]
    body = sent.get_body(("plain",))
    assert body is not None
    assert body.get_content().replace("\r\n", "\n") == found.text


def why_not_known(settings: Settings, now: datetime = NOW) -> str:
    with pytest.raises(ShardpostError, match="but its content is unknown: ") as error:
        as_sent(settings, now)
    return str(error.value).partition("content is unknown: ")[2]


def looking(settings: Settings, folder: Path, name: str) -> Settings:
    folder = folder / "look"
    folder.mkdir(exist_ok=True)
    (folder / "subject.txt").write_text(f"Look {name}")
    url = f"https://{name}.example/{{client}}/{{token}}"
    given = {"mail_from": f"Bank {name} <bank@x.example>", "unsubscribe_url": url}
    secret = {"unsubscribe_secret": f"{name}:0123456789abcdef-{name}"}
    return settings.model_copy(update={"mail_templates": folder, **given, **secret})


def begun(settings: Settings, *clients: str) -> None:
    begin(settings, WEEK, NOW)
    freeze(settings, WEEK, clients, NOW)


def test_what_was_sent_is_shown_by_the_sender_and_the_templates_of_then(
    world: World, tmp_path: Path
) -> None:
    begun(world.settings, "c1")
    settings = looking(world.settings, tmp_path, "a")
    mail = run(settings).send()
    later = looking(world.settings, tmp_path, "b")
    run(later, NOW + MINUTE).keep_look()
    both = f"{later.unsubscribe_secret} {settings.unsubscribe_secret}"
    later = later.model_copy(update={"unsubscribe_secret": both})
    found = as_sent(later)
    require_same(found, mail)
    assert (found.subject, found.look_since, found.is_frozen) == ("Look a", NOW, True)
    assert preview(installed(later), "c1", WEEK, now=NOW).subject == "Look b"
    gone = later.model_copy(update={"unsubscribe_secret": "b:0123456789abcdef-b"})
    assert "differs" in why_not_known(gone)


def test_what_was_resolved_as_sent_is_shown_as_it_was_written_before(
    world: World, tmp_path: Path
) -> None:
    begun(world.settings, "c1")
    mail = run(looking(world.settings, tmp_path, "a")).hand_over()
    require_same(as_sent(looking(world.settings, tmp_path, "a")), mail)
    settings = looking(world.settings, tmp_path, "a").model_copy(
        update={"mail_from": "b@x.example"}
    )
    run(settings, NOW + MINUTE).keep_look()
    given = (WEEK, ("c1",), Outcome.SENT, "bob", "by the log of the server", NOW + 9 * MINUTE)
    resolve(installed(settings), Resolution(*given))
    require_same(as_sent(settings), mail)


def test_what_was_mailed_early_is_shown_as_it_was_sent_whatever_was_frozen_since(
    at: Settings,
) -> None:
    wednesday = WEEK.start + timedelta(days=2)
    world = World(at)
    world.position("1", "c1", ticker="AAPL")
    world.client("c1", email="early@x.example")
    world.commit(looked_at=wednesday)
    mail = run(at, wednesday).send()
    require_same(as_sent(at), mail)
    world.position("1", "c1", ticker="TSLA", at=wednesday + MINUTE)
    world.client("c1", email="late@x.example")
    world.commit(looked_at=NOW)
    require_same(as_sent(at), mail)
    world.close("1", at=wednesday + 2 * MINUTE)
    world.commit(looked_at=NOW)
    begun(at, "c2")
    found = as_sent(at)
    require_same(found, mail)
    assert ("AAPL" in found.text, found.is_frozen, found.snapshot) == (True, False, 1)
    assert found.headers["To"] == "c1 <early@x.example>"
    aged = at.model_copy(update={"snapshot_days": 1})
    assert "the mail composed from its record differs" in why_not_known(
        aged, NOW + timedelta(days=2)
    )


def test_what_was_mailed_again_after_a_failure_is_shown_with_the_contact_of_then(
    world: World,
) -> None:
    begun(world.settings, "c1")
    run(world.settings).fail()
    for email in ("new@x.example", "newer@x.example"):
        world.client("c1", name="New", email=email)
        world.commit(looked_at=NOW)
        assert as_sent(world.settings).headers["To"] == f"New <{email}>"
    mail = run(world.settings, again=True).send()
    world.client("c1", name="Newest", email="newest@x.example")
    world.commit(looked_at=NOW)
    found = as_sent(world.settings)
    require_same(found, mail)
    assert found.headers["To"] == "New <newer@x.example>"


def test_of_a_mail_whose_record_does_not_say_from_what_it_was_written_nothing_is_shown(
    world: World, shardpost: CommandLineHere
) -> None:
    begun(world.settings, "c1")
    record(world.settings, WEEK, "c1", DeliveryState.SENT)
    assert "does not say what it was written from" in why_not_known(world.settings)
    said = shardpost.refused("email", "preview", "c1", "--week", str(WEEK), code=1)
    assert "the ledger has the e-mail of c1 as `sent` since " in said


def test_whom_no_run_would_mail_has_a_remark(world: World) -> None:
    off, nobody = shown(world, "off"), shown(world, "nobody")
    assert off.remark == "no run sends it: not subscribed"
    assert off.headers["To"] == "off <off@x.example>"
    assert "no contact" in str(nobody.remark)
    assert "To" not in nobody.headers
    assert "you held 1 position" in nobody.text


def test_the_language_is_that_of_the_clients_latest_record(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "look"
    folder.mkdir()
    (folder / "subject.de.txt").write_text("{{ count | number }} Positionen")
    found = shown(world, "c1", mail_templates=folder)
    assert (found.language, found.subject) == ("de_AT", "2 Positionen")
    assert "1.234,5" in found.text
    for other in (CLIENT, "off", "nobody"):
        assert shown(world, other, mail_templates=folder).language is None
    assert shown(world, "off", mail_templates=folder, mail_language="de").subject == "1 Positionen"


def test_a_hostile_client_is_text_in_all_of_it(world: World) -> None:
    found = shown(world, CLIENT)
    assert "<script" not in found.html
    assert "\u202e" not in found.html + found.text + "".join(found.headers.values())
    link = found.headers["List-Unsubscribe"]
    assert not {'"', " ", "<"} & set(link[1:-1])
    assert unquote(urlsplit(link[1:-1]).query) == f"client={CLIENT}"


def test_the_command_prints_headers_and_text_and_all_as_json(
    world: World, shardpost: CommandLineHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = shardpost("email", "preview", "c1", "--week", str(WEEK))
    assert said.startswith(
        f"# {WEEK}, from the newest snapshot, not frozen yet; nothing is sent now\n"
    )
    assert "\nSubject: Your US stock in week 2026-W45: 2 positions\n" in said
    assert "\n10        AAPL    1234.5  NYSE\n" in said
    assert "<td>" not in said
    document = shardpost.json("email", "preview", "c1", "--week", str(WEEK))
    found = shown(world, "c1")
    for name in ("subject", "text", "html", "is_frozen", "snapshot", "remark"):
        assert document[name] == getattr(found, name)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    shardpost("email", "preview", "c1", "--week", str(WEEK), "--open")
    [path] = [Path(urlsplit(url).path) for url in opened]
    assert path.read_text() == found.html
    assert path.stat().st_mode & 0o077 == 0
    path.unlink()


def test_options_follow_the_subcommand_and_a_send_needs_its_week(
    shardpost: CommandLineHere,
) -> None:
    said = shardpost.refused("email", "--week", str(WEEK), "preview", "c1", code=2)
    assert "put the options of `email preview` after its name" in said
    code, _, told = shardpost.answer("email")
    assert (code, "Missing option '--week'" in told) == (2, True)


def test_templates_are_written_and_a_wrong_one_stops_preview_and_send(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "look"
    own = CommandLineHere({**world.settings.environ(), "SHARDPOST_MAIL_TEMPLATES": str(folder)})
    assert f"email templates init {folder}" in own.refused(
        "email", "preview", "c1", "--week", str(WEEK), code=2
    )
    assert str(folder / "weekly_email.html") in own("email", "templates", "init")
    own("email", "preview", "c1", "--week", str(WEEK))
    (folder / "subject.txt").write_text("\n{{ clientt }}")
    for command in (("preview", "c1", "--week"), ("--dry-run", "--week")):
        said = own.refused("email", *command, str(WEEK), code=2)
        assert f"{folder}/subject.txt, line 2: " in said
    assert "not overwritten" in own.refused("email", "templates", "init", code=2)
