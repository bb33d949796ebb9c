"""A picture of curves, size against seconds, both logarithmic, as SVG."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from statistics import linear_regression

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 50, 20, 90
COLOURS = ("#1f6feb", "#c2410c", "#15803d")


@dataclass(frozen=True)
class Curve:
    """What was measured: a name, and (size, seconds) in ascending order of size."""

    name: str
    points: Sequence[tuple[int, float]]

    @property
    def exponent(self) -> float:
        """The slope of the curve where both axes are logarithmic."""
        return linear_regression(*_logarithms(self.points)).slope


def draw(curves: Sequence[Curve]) -> str:
    """Return the picture."""
    xs, ys = _logarithms([point for curve in curves for point in curve.points])
    frame = _Frame(floor(min(xs)), ceil(max(xs)), floor(min(ys)), ceil(max(ys)))
    parts = [*frame.grid()]
    for number, curve in enumerate(curves):
        parts += frame.line(curve, COLOURS[number % len(COLOURS)], number)
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    style = 'font-family="sans-serif" font-size="12"'
    whole = "\n".join(parts)
    return f'{start} {style}>\n<rect width="100%" height="100%" fill="white"/>\n{whole}\n</svg>\n'


@dataclass(frozen=True)
class _Frame:
    """The powers of ten that the axes reach from and to."""

    x0: int
    x1: int
    y0: int
    y1: int

    def at(self, size: float, seconds: float) -> tuple[float, float]:
        right, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        x = LEFT + right * (log10(size) - self.x0) / (self.x1 - self.x0)
        y = TOP + down * (self.y1 - log10(seconds)) / (self.y1 - self.y0)
        return round(x, 1), round(y, 1)

    def grid(self) -> Iterable[str]:
        for power in range(self.x0, self.x1 + 1):
            x, bottom = self.at(10**power, 10**self.y0)
            yield f'<path d="M{x} {TOP}V{bottom}" stroke="#ddd"/>'
            yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{10**power:,}</text>'
        for power in range(self.y0, self.y1 + 1):
            left, y = self.at(10**self.x0, 10.0**power)
            yield f'<path d="M{left} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>'
            yield f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{10**power:,} s</text>'

    def line(self, curve: Curve, colour: str, number: int) -> Iterable[str]:
        places = [self.at(*point) for point in curve.points]
        path = "L".join(f"{x} {y}" for x, y in places)
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>' for x, y in places)
        text = f"{curve.name}: exponent {curve.exponent:.2f}"
        y = HEIGHT - BOTTOM + 45 + 20 * number
        yield f'<rect x="{LEFT}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{LEFT + 16}" y="{y}">{escape(text)}</text>'


def _logarithms(points: Sequence[tuple[int, float]]) -> tuple[list[float], list[float]]:
    return [log10(size) for size, _ in points], [log10(seconds) for _, seconds in points]
