"""How every figure of the book looks: one style, one colour per estimator, a few helpers.

Importing this module sets the style.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Patch

# Hues near those of Okabe and Ito, each dark enough to be a label on white (4.5:1), and far enough
# apart, in lightness where hue does not help, to be told apart with every common form of colour
# blindness. tests/test_plotting.py simulates it.
BLACK, GREY, BROWN, ORANGE = "#000000", "#757575", "#553C2B", "#A56810"
BLUE, SKY, GREEN = "#256DE7", "#0B6F93", "#086324"
VERMILLION, PURPLE = "#AE1F0A", "#C031A6"

# The same estimator has the same colour in every chapter. Two names share a colour only
# where the two are not drawn in one figure.
COLORS = {
    # estimators
    "SF": VERMILLION, "RP1": BLUE, "RP2": SKY, "GR": PURPLE, "CF": GREEN,
    "RB": BROWN, "PR": ORANGE, "QD": PURPLE,
    # control variates
    "c1": PURPLE, "c2": BROWN, "c3": SKY, "c4": BLUE, "c5": ORANGE, "c6": VERMILLION, "c7": GREEN,
    "score": VERMILLION,
    # sets of them, light to dark as they grow
    "S4": "#1572E7", "S5": "#1D5CB8", "S6": "#3713B1", "S7": "#101D59",
    # what they are compared with
    "none": GREY, "base": GREY, "exact": BLACK, "optimum": BLACK,
    # terms of the gradient
    "data": BLUE, "prior": ORANGE, "variational": GREEN,
}  # fmt: skip

Numbers = Sequence[float] | np.ndarray
STYLE: dict[Any, Any] = {
    "figure.figsize": (6.4, 3.4),
    "figure.dpi": 200,  # about twice the width of a text column: sharp on dense screens
    "savefig.dpi": "figure",
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",  # opaque, so that a dark page does not swallow black labels
    "axes.facecolor": "white",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "lines.linewidth": 2,
    "axes.prop_cycle": plt.cycler(color=[BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BROWN]),
    "svg.hashsalt": "cvlib",  # the same figure is the same bytes
}


def use() -> None:
    """Set the style of the book. Done on import; call it again after changing rcParams."""
    plt.rcParams.update(STYLE)


def color(name: str) -> str:
    """The colour of an estimator, a control variate, a set or a term, such as 'RP1' or 'c7'."""
    if name not in COLORS:
        raise ValueError(f"no colour for {name!r}; there are {', '.join(COLORS)}")
    return COLORS[name]


def ink(ground: Any) -> str:
    """Black or white, whichever is easier to read on a ground of this colour."""
    rgb = np.array(to_rgb(ground))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]  # of white 1; contrast is (Y + .05) / (Y' + .05)
    return "white" if 1.05 * 0.05 > (luminance + 0.05) ** 2 else "black"


def line(
    ax: Axes, x: Numbers, y: Numbers, name: str, *, label: str | None = None, dx: float = 4,
    dy: float = 0, **kwargs: Any,
) -> Line2D:  # fmt: skip
    """Draw y against x in the colour of `name` and write its label at the line's right end.

    dx, dy shift the label, in points; `label` is `name` unless given. Returns the line.
    """
    kwargs.setdefault("color", COLORS.get(name, GREY))
    (drawn,) = ax.plot(x, y, **kwargs)
    label_end(ax, x, y, name if label is None else label, drawn.get_color(), dx=dx, dy=dy)
    return drawn


def label_end(
    ax: Axes, x: Numbers, y: Numbers, text: str, color: Any, *, dx: float = 4, dy: float = 0
) -> None:
    """Write `text` beside the last point of the curve (x, y), in place of a legend."""
    ax.annotate(
        text, (x[-1], y[-1]), (dx, dy), textcoords="offset points",
        color=color, va="center", annotation_clip=False,
    )  # fmt: skip


def band(ax: Axes, x: Numbers, runs: np.ndarray, name: str, **kwargs: Any) -> Line2D:
    """Median over runs (R, T) as a labelled `line`, in a band that leaves a tenth on each side."""
    low, high = np.quantile(runs, (0.1, 0.9), axis=0)
    drawn = line(ax, x, np.median(runs, axis=0), name, **kwargs)
    ax.fill_between(x, low, high, color=drawn.get_color(), alpha=0.2, lw=0)
    return drawn


def error_band(
    ax: Axes, x: Numbers, mean: Numbers, error: Numbers, name: str, **kwargs: Any
) -> Line2D:
    """`mean` against x as a labelled `line`, with a band of two standard errors each side."""
    mean, error = np.asarray(mean), np.asarray(error)
    drawn = line(ax, x, mean, name, **kwargs)
    ax.fill_between(x, mean - 2 * error, mean + 2 * error, color=drawn.get_color(), alpha=0.2, lw=0)
    return drawn


def ellipse(
    ax: Axes, mean: Any, cov: Numbers, color: Any, *, sd: float = 2, **kwargs: Any
) -> Patch:
    """The contour `sd` standard deviations from `mean` (2,) of a Gaussian with `cov` (2, 2)."""
    s2, U = np.linalg.eigh(cov)
    s = np.sqrt(np.maximum(s2, 0))
    angle = np.degrees(np.arctan2(U[1, 1], U[0, 1]))
    kwargs = {"fill": False, "lw": 2} | kwargs
    patch = Ellipse(mean, 2 * sd * s[1], 2 * sd * s[0], angle=angle, edgecolor=color, **kwargs)
    return ax.add_patch(patch)


use()
