"""What the helpers draw: points of lines and bands, ellipses, labels, colours, the slider's page.

The checks take the package, so that they can be run on copies with a bug (tests/harness.py).
"""

import base64
import io
import itertools
import subprocess
import sys
from contextlib import contextmanager
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pytest
from harness import PACKAGE, part
from matplotlib.colors import to_hex, to_rgba
from numpy.testing import assert_allclose

import cvlib

X, Y = [1.0, 2.0, 4.0], [3.0, -1.0, 0.5]


@contextmanager
def drawn(cv):
    """The package's plotting and empty axes."""
    with plt.rc_context():
        plotting = part(cv, "plotting")
        figure, ax = plt.subplots()
        try:
            yield plotting, ax
        finally:
            plt.close(figure)


def edges(ax):
    """Of the only band on the axes: {x: (lowest y, highest y)}, and the band."""
    (band,) = ax.collections
    (path,) = band.get_paths()
    points = path.vertices[:-1] if (path.vertices[-1] == path.vertices[0]).all() else path.vertices
    return {x: (points[points[:, 0] == x, 1].min(), points[points[:, 0] == x, 1].max())
            for x in np.unique(points[:, 0])}, band  # fmt: skip


# Lines, labels and colours -------------------------------------------------------------------


def check_line(cv):
    with drawn(cv) as (plotting, ax):
        returned = plotting.line(ax, X, Y, "c7")
        assert list(ax.lines) == [returned]
        assert_allclose(returned.get_xydata(), np.column_stack([X, Y]))
        assert returned.get_color() == "#009E73"
        (label,) = ax.texts
        assert (label.get_text(), label.xy) == ("c7", (4.0, 0.5))  # at the last point
        assert label.get_color() == "#009E73" and label.get_verticalalignment() == "center"
        assert label.xyann == (4, 0) and label.anncoords == "offset points"
        assert label.xycoords == "data" and label.get_annotation_clip() is False


def check_a_line_of_ones_own(cv):
    """Shifted label, other words, options of matplotlib, a name without a colour."""
    with drawn(cv) as (plotting, ax):
        plotting.line(ax, X, Y, "mine", label="words", dx=-3, dy=7, ls="--", lw=1)
        plotting.line(ax, X, Y, "c7", color="#123456", label="")
        mine, other = ax.lines
        assert mine.get_color() == "#767676" and mine.get_linestyle() == "--"
        assert mine.get_linewidth() == 1 and other.get_color() == "#123456"
        first, second = ax.texts
        assert (first.get_text(), first.xyann, first.get_color()) == ("words", (-3, 7), "#767676")
        assert (second.get_text(), second.get_color()) == ("", "#123456")


def check_label_end(cv):
    with drawn(cv) as (plotting, ax):
        plotting.label_end(ax, np.array(X), np.array(Y), "here", "#111111", dx=1, dy=2)
        (label,) = ax.texts
        assert label.get_text() == "here" and label.get_color() == "#111111"
        assert label.xy == (4.0, 0.5) and label.xyann == (1, 2) and not ax.lines


def check_colors(cv):
    """Every name a chapter draws, told apart within each group by eye: far apart in RGB."""
    plotting = part(cv, "plotting")
    groups = ["SF RP1 RP2 GR CF", "c1 c2 c3 c4 c5 c6 c7", "S4 S5 S6 S7", "data prior variational"]
    for group in groups:
        rgb = np.array([to_rgba(plotting.color(name))[:3] for name in group.split()])
        apart = np.linalg.norm(rgb[:, None] - rgb, axis=-1) + np.eye(len(rgb))
        assert apart.min() > 0.2, group
    light = [sum(to_rgba(plotting.color(name))[:3]) for name in ("S4", "S5", "S6", "S7")]
    assert light == sorted(light, reverse=True)  # light to dark as the sets grow
    assert plotting.color("none") == plotting.color("base") == "#767676"
    assert plotting.color("exact") == plotting.color("optimum") == "#000000"
    assert (plotting.color("RP1"), plotting.color("c5")) == ("#0072B2", "#E69F00")
    said = ""
    try:
        plotting.color("c9")
    except ValueError as error:
        said = str(error)
    assert said.startswith("no colour for 'c9'; there are SF, RP1, RP2") and "c7" in said


def check_style(cv):
    """Importing sets the style; `use` sets it again after a change."""
    with plt.rc_context():
        plotting = part(cv, "plotting")
        plt.rcParams.update({"axes.spines.top": True, "lines.linewidth": 9, "figure.dpi": 50})
        plotting.use()
        found = {key: plt.rcParams[key] for key in plotting.STYLE}
        assert not found["axes.spines.top"] and not found["axes.spines.right"]
        assert (found["lines.linewidth"], found["figure.dpi"]) == (2, 200)
        assert found["svg.hashsalt"] == "cvlib" and found["figure.facecolor"] == "white"
        cycle = [to_hex(c) for c in found["axes.prop_cycle"].by_key()["color"]]
        assert cycle[:2] == ["#0072b2", "#d55e00"] and len(set(cycle)) == 7


# Bands ---------------------------------------------------------------------------------------


def check_band(cv):
    """Eleven runs with values 0 ... 10 times 1, 2, 3: the quantiles are 1 and 9, the median 5."""
    runs = np.random.default_rng(0).permutation(11)[:, None] * [1.0, 2.0, 3.0]
    with drawn(cv) as (plotting, ax):
        line = plotting.band(ax, X, runs, "SF", dx=9, dy=8, ls=":")
        assert_allclose(line.get_xydata(), np.column_stack([X, [5, 10, 15]]))
        found, band = edges(ax)
        assert list(found) == X
        assert_allclose(list(found.values()), [[1, 9], [2, 18], [3, 27]])
        assert_allclose(band.get_facecolor(), [to_rgba("#D55E00", 0.2)])
        assert line.get_linestyle() == ":" and np.all(band.get_linewidth() == 0)
        (label,) = ax.texts
        assert (label.get_text(), label.xy, label.xyann) == ("SF", (4.0, 15.0), (9, 8))
    with drawn(cv) as (plotting, ax):
        plotting.band(ax, X, runs, "SF", quantiles=(0.2, 0.7), label="", color="#010203")
        found, band = edges(ax)
        assert_allclose(list(found.values()), [[2, 7], [4, 14], [6, 21]])
        assert_allclose(band.get_facecolor(), [to_rgba("#010203", 0.2)])


def check_error_band(cv):
    """Two standard errors each side of the mean, from lists."""
    with drawn(cv) as (plotting, ax):
        line = plotting.error_band(ax, X, Y, [0.5, 1.0, 0.25], "CF", dx=5, dy=-5, lw=3)
        assert_allclose(line.get_xydata(), np.column_stack([X, Y]))
        found, band = edges(ax)
        assert list(found) == X
        assert_allclose(list(found.values()), [[2, 4], [-3, 1], [0, 1]])
        assert_allclose(band.get_facecolor(), [to_rgba("#009E73", 0.2)])
        assert line.get_linewidth() == 3 and np.all(band.get_linewidth() == 0)
        (label,) = ax.texts
        assert (label.get_text(), label.xy, label.xyann) == ("CF", (4.0, 0.5), (5, -5))


# Ellipses ------------------------------------------------------------------------------------


def outline(patch):
    """Points on the outline of a patch, in data coordinates."""
    path = patch.get_patch_transform().transform_path(patch.get_path())
    return np.concatenate([curve(np.linspace(0, 1, 9)) for curve, _ in path.iter_bezier()])


def check_ellipse(cv):
    """On the outline (z - m)^T Sigma^-1 (z - m) = sd^2, for Gaussians that lean either way."""
    mean = np.array([1.0, -2.0])
    covs = [[4, 1.5], [1.5, 1]], [[1, -0.8], [-0.8, 1]], [[1, 0], [0, 9]], [[9, 0], [0, 1]]
    with drawn(cv) as (plotting, ax):
        for cov, sd in itertools.product(covs, (2, 1, 0.5)):
            more = {} if sd == 2 else {"sd": sd}  # two is what it draws unless told
            patch = plotting.ellipse(ax, mean, np.array(cov, float), "#0072B2", **more)
            assert ax.patches[-1] is patch
            z = outline(patch) - mean
            distance = np.sqrt(np.einsum("ni,ij,nj->n", z, np.linalg.inv(cov), z))
            assert_allclose(distance, sd, rtol=1e-3)
            s = np.sqrt(np.linalg.eigvalsh(cov))
            assert_allclose([patch.width, patch.height], 2 * sd * s[::-1])
            assert to_hex(patch.get_edgecolor()).upper() == "#0072B2"
            assert not patch.get_fill() and patch.get_linewidth() == 2
        assert len(ax.patches) == 12


def check_ellipse_of_a_line(cv):
    """Rounding may leave a degenerate covariance below zero: a line, not a NaN."""
    with drawn(cv) as (plotting, ax):
        cov = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-15]])
        patch = plotting.ellipse(ax, (0, 0), cov, "k", fill=True, lw=5, alpha=0.5)
        assert_allclose([patch.width, patch.height], [4 * 2**0.5, 0], atol=1e-6)
        assert_allclose(patch.angle % 180, 45)
        assert patch.get_fill() and patch.get_linewidth() == 5 and patch.get_alpha() == 0.5


# The slider ----------------------------------------------------------------------------------


class Page(HTMLParser):
    """The tags of a page with their attributes, and the text inside each kind of tag."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.inside = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if self.inside and data.strip():
            self.text[self.inside[-1]] = self.text.get(self.inside[-1], "") + data.strip()

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def coloured(colors):
    """A figure all of one colour for each name, one at a time."""
    for color in colors:
        yield plt.figure(figsize=(1, 0.5), facecolor=color)


def check_slider(cv):
    """One picture a value, the first of them shown where `start` says; no address, no names."""
    from PIL import Image

    with plt.rc_context():
        plotting = part(cv, "plotting")
        before = plt.get_fignums()
        shown = plotting.slider(
            coloured(["red", "lime", "blue"]), [1, "a < b", 2.5], label="draws & M",
            alts=["r", 'g "quoted"', "b"], start=1, dpi=40,
        )  # fmt: skip
        assert plt.get_fignums() == before  # every figure was closed
    text = shown._repr_html_()
    assert repr(shown) == "<an interactive figure: open the page in a browser>"
    assert "http" not in text and " id=" not in text
    page = Page(text)
    images = page.all("img")
    assert [image["alt"] for image in images] == ["r", 'g "quoted"', "b"]
    display = [image["style"].split("display:")[1] for image in images]
    assert display == ["none", "block", "none"]
    for image, color in zip(images, [(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
        kind, data = image["src"].split(",")
        assert kind == "data:image/png;base64"
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        assert picture.size == (40, 20) and picture.convert("RGB").getpixel((20, 10)) == color
    (slider,) = page.all("input")
    assert (slider["type"], slider["min"], slider["max"]) == ("range", "0", "2")
    assert (slider["value"], slider["aria-valuetext"]) == ("1", "a < b")
    assert page.all("div")[0]["data-values"].split("|") == ["1", "a < b", "2.5"]
    assert page.text["output"] == "a < b" and page.text["span"] == "draws & M"


def check_pictures_have_few_colors(cv):
    from PIL import Image

    with plt.rc_context():
        plotting = part(cv, "plotting")
        figure, ax = plt.subplots(figsize=(2, 2))
        ax.imshow(np.linspace(0, 1, 400).reshape(20, 20))
        text = plotting.slider([figure], ["x"], label="", alts=["x"], dpi=30, colors=8).text
    data = Page(text).all("img")[0]["src"].split(",")[1]
    picture = Image.open(io.BytesIO(base64.b64decode(data)))
    assert picture.size == (60, 60) and 2 < len(picture.getcolors()) <= 8


def check_a_slider_needs_a_value_and_words_for_each_figure(cv):
    with plt.rc_context():
        plotting = part(cv, "plotting")
        for values, alts in ([1], ["a", "b"]), ([1, 2], ["a"]), ([1, 2, 3], ["a", "b"]):
            said = ""
            try:
                plotting.slider(coloured(["red", "blue"]), values, label="", alts=alts, dpi=30)
            except ValueError as error:
                said = str(error)
            assert f"got 2 figures, {len(values)} values and {len(alts)} alt texts" in said


CHECKS = {name[6:]: f for name, f in list(globals().items()) if name.startswith("check_")}


@pytest.mark.parametrize("name", CHECKS)
def test(name):
    CHECKS[name](cvlib)


# Without matplotlib --------------------------------------------------------------------------


def test_without_matplotlib_the_package_works_and_plotting_says_what_it_needs():
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import cvlib, cvlib.experiments\n"
        "try: import cvlib.plotting\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert "cvlib.plotting draws with matplotlib" in run.stdout, run.stderr
    assert "pip install matplotlib" in run.stdout
