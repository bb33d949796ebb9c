"""A chart of curves, size against seconds, both axes logarithmic, as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from math import log10
from statistics import linear_regression

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

INCHES = (8, 5)


@dataclass(frozen=True)
class Curve:
    """What was measured: a name, and (size, seconds) in ascending order of size."""

    name: str
    points: Sequence[tuple[int, float]]

    @property
    def exponent(self) -> float:
        """The slope of the curve where both axes are logarithmic."""
        sizes, seconds = zip(*self.points, strict=True)
        return linear_regression(list(map(log10, sizes)), list(map(log10, seconds))).slope

    @property
    def label(self) -> str:
        """Its name in the legend."""
        return f"{self.name}: exponent {self.exponent:.2f}"


def draw(curves: Sequence[Curve]) -> str:
    """Return the chart as an SVG document."""
    # Text stays text, and the same curves give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shardpost"}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log", xlabel="records", ylabel="seconds")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
        axes.grid(which="both", color="#dddddd")
        for number, curve in enumerate(curves):
            x, y = zip(*curve.points, strict=True)
            axes.plot(x, y, marker="o", label=curve.label, gid=f"curve-{number}")
        figure.legend(loc="outside lower left", frameon=False)
        svg = StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return svg.getvalue()
