"""The demo as an animation of its terminal: an SVG without a script, played by CSS.

Libraries that turn a recording into an SVG (termtosvg-ng, showreel, ptyreel; termtosvg is no longer
kept, svg-term is of npm) draw the whole screen once for each change, in the colours of one theme.
A demo only adds lines. So all lines are written once, and two animations show them: what hides
those to come moves down, and all of them move up.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path

from shardpost.embedded import demo
from shardpost.settings import load

ROWS, COLUMNS = 26, 104
# Of the picture, in units of its own.
LINE, CHARACTER, MARGIN, BAR = 19, 8.2, 14, 30
# Seconds of the animation; before an empty line one has time to read.
LONGEST_WAIT, SHORTEST_WAIT, TO_READ, LAST_WAIT = 1.4, 0.09, 0.5, 7.0
COMMAND = "$ shardpost demo"
STYLE = """
.paper { fill: #ffffff } .bar { fill: #eef0f3 } .frame { fill: none; stroke: #c9ced6 }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #3b4252; white-space: pre }
.bold { font-weight: 700; fill: #10141c } .dim { fill: #667085 } .cursor { fill: #0969da }
@media (prefers-color-scheme: dark) {
  .paper { fill: #0d1117 } .bar { fill: #161b22 } .frame { stroke: #30363d }
  text { fill: #c3cad3 } .bold { fill: #f0f6fc } .dim { fill: #8b949e } .cursor { fill: #58a6ff }
}
"""


@dataclass(frozen=True)
class Line:
    """One line of the terminal, and how many seconds after the start it was there."""

    at: float
    text: str


def write(file: Path, say: Callable[[str], None]) -> None:
    """Run the demo, and write its animation."""
    lines = recorded(say)
    file.write_text(animation(lines))
    say(f"{file}: {file.stat().st_size / 1000:.0f} kB")


def recorded(say: Callable[[str], None]) -> list[Line]:
    """Run the demo to its end; return what it says, and when."""
    began = time.monotonic()
    lines: list[Line] = []

    def keep(text: str) -> None:
        at = time.monotonic() - began
        lines.extend(Line(at, one) for one in text.split("\n"))
        say(f"  {text.strip()}")

    demo.run_demo(load(), now=datetime.now(UTC), keep=False, say=keep)
    return lines


def animation(lines: Sequence[Line]) -> str:
    """Return the SVG: the command, then all lines, with long waits shortened."""
    shown = [Line(0, COMMAND), *lines]
    times, duration = shortened(shown)
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    height = BAR + ROWS * LINE + 2 * MARGIN
    seconds = f"{shown[-1].at:.0f} s, long waits shortened"
    rows = "\n".join(_row(number, one.text) for number, one in enumerate(shown))
    top = BAR + MARGIN
    # Where there is no animation, the end is shown.
    down, up = _down(len(shown)), _up(len(shown))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-labelledby="title">
<title id="title">shardpost demo in a terminal: {seconds}</title>
<style>{STYLE}
.text {{ transform: translateY({up}px); animation: up {duration:.2f}s step-end infinite }}
.rest {{ transform: translateY({down}px); animation: down {duration:.2f}s step-end infinite }}
@keyframes up {{ {_frames(times, duration, _up)} }}
@keyframes down {{ {_frames(times, duration, _down)} }}
@media (prefers-reduced-motion: reduce) {{ .text, .rest {{ animation: none }} }}
</style>
<clipPath id="screen"><rect y="{top}" width="{width}" height="{ROWS * LINE}"/></clipPath>
<rect class="paper" width="{width}" height="{height}" rx="8"/>
<path class="bar" d="M0 {BAR}V8a8 8 0 0 1 8-8H{width - 8}a8 8 0 0 1 8 8V{BAR}z"/>
<text class="dim" x="{MARGIN}" y="20">shardpost demo: {seconds}</text>
<g clip-path="url(#screen)"><g class="text">
{rows}
<g class="rest"><rect class="paper" y="{top}" width="{width}" height="{down + height}"/>
<rect class="cursor" x="{MARGIN}" y="{top + 2}" width="8" height="{LINE - 4}"/></g>
</g></g>
<rect class="frame" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>
</svg>
"""


def shortened(lines: Sequence[Line]) -> tuple[list[float], float]:
    """Return when each line is shown, and how long all of it takes."""
    at = 0.0
    shown = [at]
    for before, line in pairwise(lines):
        least = SHORTEST_WAIT if line.text.strip() else TO_READ
        at += min(LONGEST_WAIT, max(least, line.at - before.at))
        shown.append(at)
    return shown, at + LAST_WAIT


def _down(shown: int) -> int:
    """Return where the lines to come begin, below the first one's place."""
    return shown * LINE


def _up(shown: int) -> int:
    """Return how far all lines have moved, so that the cursor's is the last one on the screen."""
    return -max(0, shown + 1 - ROWS) * LINE


def _frames(times: Sequence[float], duration: float, place: Callable[[int], int]) -> str:
    """Return the keyframes that move by `place` of how many lines are shown."""
    frames: list[str] = []
    moved: int | None = None
    for number, at in enumerate(times, 1):
        if (to := place(number)) != moved:
            frames.append(f"{100 * at / duration:.3f}% {{ transform: translateY({to}px) }}")
        moved = to
    return " ".join(frames)


def _row(number: int, text: str) -> str:
    cut = text if len(text) <= COLUMNS else f"{text[: COLUMNS - 1]}…"
    kind = ' class="bold"' if cut == COMMAND or (cut[:1] != " " and cut.endswith(":")) else ""
    y = BAR + MARGIN + number * LINE + 14
    return f'<text{kind} x="{MARGIN}" y="{y}">{escape(cut, quote=False)}</text>' if cut else ""


if __name__ == "__main__":
    write(Path(sys.argv[1]), print)
