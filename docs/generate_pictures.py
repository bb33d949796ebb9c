"""Write docs/pictures: each page of a stack that has something to show, and the demo, animated.

PYTHONPATH=. .venv/bin/python docs/generate_pictures.py [--into FOLDER] [--narrow] [--keep]
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
from tests.support.browser import NARROW, WIDE, chromium, log_in

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
MOST_BYTES, COLORS = 150_000, (256, 128, 64, 32)
# Airflow's own choice of a theme, which our pages follow.
CHOOSE_THEME = "localStorage.setItem('theme', '{theme}')"
# Charts come last: each has been drawn when its place has a drawing.
DRAWN = "[...document.querySelectorAll('.chart')].every(one => one.querySelector('svg'))"


@dataclass(frozen=True)
class Shown:
    """A picture: its name, the page's address, and of which link there the page is that is shown.

    `link` is how the link's address begins, below the page's; None: the page itself.
    """

    name: str
    path: str
    link: str | None = None


def shown(story: picture_story.Played) -> Iterator[Shown]:
    """Yield what there is a picture of: all parts of the page, and some that links lead to."""
    from shardpost.page.rendering import SECTIONS  # with Airflow, which has a home by now

    for section in SECTIONS:
        yield Shown(section.path or "overview", section.path)
    week, client = story.week, story.client
    yield Shown("client", "holders/client?" + urlencode({"client": client}))
    yield Shown("week", "emails", f"emails/week?week={week}")
    yield Shown("mail", "emails/mail?" + urlencode({"week": week, "client": client}))
    yield Shown("letter", "letters?state=parked", "letters/letter")


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
    if not asked.narrow:
        demo_animation.write(asked.into / "demo.svg", click.echo)
    with picture_story.played(click.echo, keep=asked.keep) as story, chromium() as browser:
        for theme in THEMES:
            problems += _take_all(browser, story, theme, asked)
    for problem in problems:
        click.echo(f"not shown: {problem}", err=True)
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    folder = CHECKOUT / "docs" / "pictures"
    parser.add_argument("--into", type=Path, default=folder, help="the folder; else docs/pictures")
    parser.add_argument("--narrow", action="store_true", help="as on a phone, and no animation")
    parser.add_argument("--keep", action="store_true", help="leave the stack up")
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
    sys.exit(main())
