"""Write docs/pictures: each page of a stack that has something to show, and the demo, animated.

PYTHONPATH=. .venv/bin/python docs/generate_pictures.py [--into FOLDER] [--narrow] [--home FOLDER]
"""

import argparse
import io
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import click
import demo_animation
import picture_story
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Error, Page

from shardpost.checkout import CHECKOUT
from shardpost.errors import ShardpostError
from tests.support.browser import NARROW, WIDE, chromium, log_in

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
MOST_BYTES, COLORS = 150_000, (256, 128, 64, 32)
# Airflow's own choice of a theme, which our pages follow.
CHOOSE_THEME = "localStorage.setItem('theme', '{theme}')"
GALLERY = """# Pictures

The page in Airflow, of a stack on which [a month was played](../picture_story.py). Made by `make
screenshots`, as is [the demo](demo.svg). In the dark theme where yours is dark.
"""
# Charts come last: each has been drawn when its place has a drawing.
DRAWN = "[...document.querySelectorAll('.chart')].every(one => one.querySelector('svg'))"
# What the page says of counts that it has no more than begun.
COUNTING, MOST_TIMES = "Not all weeks are counted yet", 30


@dataclass(frozen=True)
class Shown:
    """A picture: its name, its title, and the address of the page.

    Or of a page that has a link to what is shown; `link` is how that one's address begins.
    """

    name: str
    title: str
    path: str
    link: str | None = None


def shown(story: picture_story.Played) -> Iterator[Shown]:
    """Yield what there is a picture of: all parts of the page, and some that links lead to."""
    from shardpost.page.rendering import SECTIONS  # with Airflow, which has a home by now

    for path, title in SECTIONS.items():
        yield Shown(path or "overview", title, path)
    week, client = story.week, story.client
    yield Shown("client", "A client", "holders/client?" + urlencode({"client": client}))
    yield Shown("week", "A week", "emails", f"emails/week?week={week}")
    yield Shown("mail", "A mail", "emails/mail?" + urlencode({"week": week, "client": client}))
    yield Shown("letter", "A letter", "letters/list?state=parked", "letters/letter")
    yield Shown("record", "A record", "records", "records/record")


class CannotShowError(Exception):
    """Why a page cannot be shown."""


def main() -> int:
    """Make all pictures; return the exit code."""
    asked = _arguments()
    if shutil.which("chromium") is None:
        click.echo("no chromium: apt-get install --no-install-recommends chromium", err=True)
        return 1
    asked.into.mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    if asked.home is None:
        demo_animation.write(asked.into / "demo.svg", click.echo)
    with picture_story.played(click.echo, asked.home) as story, chromium() as browser:
        for theme in THEMES:
            problems += _take_all(browser, story, theme, asked)
        if problems:
            raise SystemExit("\n".join(f"not shown: {problem}" for problem in problems))
        (asked.into / "README.md").write_text(_gallery(story))
    return 0


def _gallery(story: picture_story.Played) -> str:
    """Return a page of all pictures."""
    parts = [
        f"## {one.title}\n\n<picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="{one.name}-dark.png">'
        f'<img alt="{one.title}" src="{one.name}-light.png"></picture>'
        for one in shown(story)
    ]
    return "\n\n".join([GALLERY, *parts]) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    folder = CHECKOUT / "docs" / "pictures"
    parser.add_argument("--into", type=Path, default=folder, help="the folder; else docs/pictures")
    parser.add_argument("--narrow", action="store_true", help="as on a phone")
    parser.add_argument("--home", type=Path, help="of a stack that was kept, and is used again")
    return parser.parse_args()


def _take_all(
    browser: Browser, story: picture_story.Played, theme: Theme, asked: argparse.Namespace
) -> Iterator[str]:
    """Write the pictures of one theme; yield what cannot be shown."""
    context = browser.new_context(
        viewport=NARROW if asked.narrow else WIDE,
        base_url=story.address,
        color_scheme=theme,
        locale="en-GB",
        timezone_id="Europe/Berlin",
    )
    context.add_init_script(CHOOSE_THEME.format(theme=theme))
    page = _logged_in(context, story)
    for one in shown(story):
        try:
            _open(page, one)
        except (CannotShowError, Error) as error:
            yield f"{one.name} ({theme}), /shardpost/{one.path}: {str(error).splitlines()[0]}"
            continue
        picture = _reduced(page.screenshot())
        file = asked.into / f"{one.name}-{theme}.png"
        file.write_bytes(picture)
        click.echo(f"{file}: {len(picture) / 1000:.0f} kB")
    context.close()


def _logged_in(context: BrowserContext, story: picture_story.Played) -> Page:
    page = context.new_page()
    page.goto("/shardpost/")  # leads to the login, and back
    log_in(page, story.user, story.password)
    page.wait_for_url("**/shardpost/")
    return page


def _open(page: Page, one: Shown) -> None:
    """Open a page and wait for its charts; CannotShowError if it is not there."""
    _go(page, f"/shardpost/{one.path}")
    if one.link is not None:
        link = page.locator(f'main a[href^="/shardpost/{one.link}"]').first
        if not link.count():
            raise CannotShowError(f"no link there leads to /shardpost/{one.link}…")
        _go(page, link.get_attribute("href") or "")
    page.wait_for_function(DRAWN)
    for _ in range(MOST_TIMES):
        if not page.get_by_text(COUNTING).count():
            break
        page.wait_for_timeout(1000)
        page.reload()
        page.wait_for_function(DRAWN)


def _go(page: Page, address: str) -> None:
    answer = page.goto(address, wait_until="load")
    if answer is None or not answer.ok:
        said = page.locator("main").all_inner_texts()
        status = answer.status if answer else "no answer"
        raise CannotShowError(f"{status}: {' '.join(' '.join(said).split())[:300]}")


def _reduced(picture: bytes) -> bytes:
    """Return the picture with as many colours as its size allows."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colors in COLORS:
        out = io.BytesIO()
        image.quantize(colors, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if out.tell() <= MOST_BYTES:
            break
    return out.getvalue()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ShardpostError as error:
        sys.exit(f"no pictures: {error}")
