"""The page in a real browser, inside a real Airflow."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from shardpost.embedded.demo import contact_record, position_record, produce
from shardpost.page.rendering import SECTIONS
from tests.support.browser import NARROW, WIDE, Console, chromium, log_in
from tests.support.command_line import CommandLine

# What is told by nobody else's words: a script, a direction that turns, steering of a terminal.
HOSTILE = "<script>alert(1)</script>\u202eabc\x1b[31m"
SERIOUS = {"serious", "critical"}
BAD, MENDED = "page-bad", '{"Client": "page-one", "Ticker": "IBM", "Amount": 1, "Exchange": "NYSE"}'


@pytest.fixture(scope="module")
def known(stack: CommandLine) -> CommandLine:
    """Give the stack when it knows some holders."""
    clients = ("page-one", "page-two", HOSTILE)
    records = [contact_record(client) for client in clients]
    for number, client in enumerate(clients):
        records.append(position_record(f"page-{number}", client, "IBM", 1, "NYSE"))
    produce(stack.settings, [*records, ("positions", BAD, {"Client": "page-one"})])
    stack("compact")
    stack("letters", "sweep", code=3)  # one is parked
    return stack


@pytest.fixture(scope="module")
def airflow(known: CommandLine) -> dict[str, str]:
    """Give the address, the user and the password that the command says."""
    return dict(known.json("status")["airflow"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, airflow: dict[str, str]) -> Iterator[Page]:
    """Give a page of somebody who has logged in."""
    context = browser.new_context(viewport=WIDE, base_url=airflow["address"])
    page = context.new_page()
    page.goto("/shardpost/")  # leads to the login, and back
    log_in(page, airflow["user"], airflow["password"])
    page.wait_for_url("**/shardpost/")
    yield page
    context.close()


def test_it_is_in_airflows_navigation_and_each_part_is_to_be_read_by_all(page: Page) -> None:
    console = Console(page)
    page.goto("/")
    page.get_by_role("link", name="Shardpost", exact=True).click()
    inside = page.frame_locator("iframe")
    expect(inside.get_by_role("heading", level=1)).to_have_text("Overview")
    for path, title in SECTIONS.items():
        found = page.goto(f"/shardpost/{path}")
        assert found is not None
        assert found.status == 200, f"{title}: {page.inner_text('main')}"
        expect(page.locator("nav [aria-current=page]")).to_have_text(title)
        problems = [
            one for one in Axe().run(page).response["violations"] if one["impact"] in SERIOUS
        ]
        assert problems == [], title
        page.set_viewport_size(NARROW)
        widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], f"{title} is wider than a phone"
        expect(page.locator("nav [aria-current=page]")).to_be_in_viewport()
        page.set_viewport_size(WIDE)
    assert console.errors == []


def test_a_link_to_one_of_airflows_own_pages_leads_there_around_the_frame(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Shardpost", exact=True).click()
    inside = page.frame_locator("iframe")
    link = "const link = document.createElement('a'); link.href = '/dags/watch_kafka';"
    append = "link.textContent = 'to Airflow'; main.append(link);"
    inside.locator("main").evaluate(f"main => {{ {link} {append} }}")
    inside.get_by_role("link", name="to Airflow").click()
    page.wait_for_url("**/dags/watch_kafka")
    expect(page.locator("iframe")).to_have_count(0)


def test_the_keyboard_alone_leads_to_a_client(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    while page.locator(":focus").inner_text() != "Holders":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Holders")


def test_hostile_names_are_text(page: Page) -> None:
    page.on("dialog", lambda _: pytest.fail("a script ran"))
    page.goto("/shardpost/holders")
    assert "<script>alert(1)</script>" in page.inner_text("main")


def test_who_is_not_logged_in_sees_and_does_nothing(
    browser: Browser, airflow: dict[str, str]
) -> None:
    with browser.new_context(base_url=airflow["address"]) as context:
        for path, title in SECTIONS.items():
            asked = context.request.get(f"/shardpost/{path}", max_redirects=0)
            assert asked.status == 401, title


def test_a_parked_letter_is_redriven_with_another_value(page: Page, known: CommandLine) -> None:
    page.goto(f"/shardpost/letters/list?state=parked&text={BAD}")
    page.get_by_role("table").get_by_role("link").first.click()
    letter = page.get_by_role("heading", level=1).inner_text().removeprefix("Letter ")
    page.get_by_label("Value").last.fill(MENDED)
    page.get_by_role("button", name="Show what this would do").click()
    page.get_by_label("Why").fill("it lacked three fields")
    page.get_by_role("button", name="Redrive 1 letter").click()
    # At once, or later on a machine that is slow: the page says the same in the end.
    said = "done 1 of 1 letter redriven with the given value"
    expect(page.get_by_role("status")).to_have_text(said, timeout=60_000)
    found = known.json("letters", "show", letter)
    assert found["retries"][-1]["value"] == MENDED
    [decision] = found["decisions"]
    assert (decision["who"], decision["why"]) == ("admin", "it lacked three fields")
