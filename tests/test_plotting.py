"""What the helpers draw: lines and bands, ellipses, labels, colours, the slider's page."""

import base64
import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import plotting  # this and sliders lie in tools/
import pytest
import sliders
from bs4 import BeautifulSoup
from matplotlib.colors import to_hex, to_rgba
from numpy.testing import assert_allclose
from PIL import Image
from scipy.spatial.distance import pdist

X, Y = [1.0, 2.0, 4.0], [3.0, -1.0, 0.5]
luminance = lambda linear: linear @ [0.2126, 0.7152, 0.0722]


@pytest.fixture
def ax():
    with plt.rc_context():
        plotting.use()
        figure, ax = plt.subplots()
        yield ax
        plt.close(figure)


def test_ink():
    """Black or white, the one with the larger contrast; on any ground that is 4.5:1 or more."""
    grounds = [(r, g, b) for r in STEPS for g in STEPS for b in STEPS]
    for ground in [*grounds, "white", "k", "#256DE7", (0.2, 0.1, 0.9, 0.5)]:
        bright = luminance(linear(ground))
        contrast = {"white": 1.05 / (bright + 0.05), "black": (bright + 0.05) / 0.05}
        chosen = plotting.ink(ground)
        assert contrast[chosen] == max(contrast.values()) > 4.5


# Colours seen by eyes that lack one kind of cone: matrices for linear RGB of Machado, Oliveira and
# Fernandes (2009), severity 1. Distances are those of Oklab (Ottosson 2020), in which 0.02 is about
# the least that one sees; 0.05 is the difference of two greys whose lightness differs by a tenth.
STEPS = np.linspace(0, 1, 5)
EYES = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
       [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
OKLAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
         [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip


def linear(color):
    """Linear RGB of a colour, (3,)."""
    c = np.array(to_rgba(color)[:3])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def seen(colors, eye):
    """Oklab coordinates of colours (n, 3) as these eyes see them."""
    rgb = np.clip(np.array([linear(c) for c in colors]) @ np.transpose(EYES[eye]), 0, 1)
    return np.cbrt(rgb @ np.transpose(LMS)) @ np.transpose(OKLAB)


PALETTE = "BLACK GREY BROWN ORANGE BLUE SKY GREEN VERMILLION PURPLE".split()
TOGETHER = [  # names that chapters draw in one figure
    "SF RP1 RP2 GR CF base exact", "RP1 RB PR QD c7 S7 base optimum", "data prior variational",
    "c1 c2 c3 c4 c5 c6 c7 none optimum", "S4 S5 S6 S7 none c7 optimum",
    "S7 GREY PURPLE ORANGE GREEN VERMILLION", "S4 S5 S6 S7 ORANGE VERMILLION", " ".join(PALETTE),
]  # fmt: skip


def test_colors():
    """Every colour is a label on white, and colours of one figure are told apart by all eyes."""
    value = lambda name: getattr(plotting, name, None) or plotting.color(name)
    for color in [*plotting.COLORS.values(), *map(value, PALETTE)]:
        assert 1.05 / (luminance(linear(color)) + 0.05) >= 4.5, color
    for group in TOGETHER:
        colors = [value(name) for name in group.split()]
        for eye in EYES:
            least = 0.08 if eye == "all cones" else 0.05
            assert pdist(seen(colors, eye)).min() > least, (group, eye)
    light = seen(map(plotting.color, ("S4", "S5", "S6", "S7")), "all cones")[:, 0]
    assert np.all(np.diff(light) < -0.05)  # light to dark as the sets grow
    with pytest.raises(ValueError, match="^no colour for 'c9'; there are SF, RP1, RP2.*c7"):
        plotting.color("c9")


RUNS = np.random.default_rng(0).permutation(11)[:, None] * [1.0, 2.0, 3.0]
TENTHS, ERRORS = [[1, 9], [2, 18], [3, 27]], [[2, 4], [-3, 1], [0, 1]]
BANDS = [  # what is drawn; its line, its edges at each x, its colour, its label and where it stands
    (plotting.band, (RUNS, "SF"), {"dx": 9, "dy": 8, "ls": ":"}, [5, 10, 15], TENTHS, "#AE1F0A",
     ("SF", (9, 8))),
    (plotting.band, (RUNS, "SF"), {"label": "", "color": "#010203"}, [5, 10, 15], TENTHS, "#010203",
     ("", (4, 0))),
    (plotting.error_band, (Y, [0.5, 1.0, 0.25], "mine"), {"label": "words", "dy": -5, "lw": 3}, Y,
     ERRORS, "#757575", ("words", (4, -5))),
]  # fmt: skip


@pytest.mark.parametrize("draw, given, how, middle, around, color, label", BANDS)
def test_bands(ax, draw, given, how, middle, around, color, label):
    """Runs with values 0 ... 10 times 1, 2, 3; and two standard errors each side of the mean."""
    line = draw(ax, X, *given, **how)
    assert_allclose(line.get_xydata(), np.column_stack([X, middle]))
    assert (line.get_linestyle(), line.get_linewidth()) == (how.get("ls", "-"), how.get("lw", 2))
    (band,) = ax.collections
    (path,) = band.get_paths()
    x, y = path.vertices.T
    assert list(np.unique(x)) == X and np.all(band.get_linewidth() == 0)
    assert_allclose([[y[x == at].min(), y[x == at].max()] for at in X], around)
    assert_allclose(band.get_facecolor(), [to_rgba(color, 0.2)])
    (text,) = ax.texts
    assert (text.get_text(), text.xyann, text.xy) == (*label, (4.0, middle[-1]))  # at the end
    assert (text.xycoords, text.anncoords) == ("data", "offset points")
    assert text.get_verticalalignment() == "center" and text.get_annotation_clip() is False
    assert line.get_color() == text.get_color() == color


def test_ellipse(ax):
    """On the outline (z - m)^T Sigma^-1 (z - m) = sd^2, for Gaussians that lean either way."""
    mean = np.array([1.0, -2.0])
    covs = [[4, 1.5], [1.5, 1]], [[1, -0.8], [-0.8, 1]], [[1, 0], [0, 9]], [[9, 0], [0, 1]]
    for cov, sd in itertools.product(covs, (2, 1, 0.5)):
        more = {} if sd == 2 else {"sd": sd}  # two is what it draws unless told
        patch = plotting.ellipse(ax, mean, np.array(cov, float), "#256DE7", **more)
        assert ax.patches[-1] is patch
        path = patch.get_patch_transform().transform_path(patch.get_path())  # of its outline
        z = np.concatenate([at(np.linspace(0, 1, 9)) for at, _ in path.iter_bezier()]) - mean
        distance = np.sqrt(np.einsum("ni,ij,nj->n", z, np.linalg.inv(cov), z))
        assert_allclose(distance, sd, rtol=1e-3)
        assert to_hex(patch.get_edgecolor()).upper() == "#256DE7"
        assert not patch.get_fill() and patch.get_linewidth() == 2
    assert len(ax.patches) == 12
    cov = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-15]])  # below zero by rounding: a line, not a NaN
    patch = plotting.ellipse(ax, (0, 0), cov, "k", fill=True, lw=5, alpha=0.5)
    assert_allclose([patch.width, patch.height], [4 * 2**0.5, 0], atol=1e-6)
    assert_allclose(patch.angle % 180, 45)
    assert patch.get_fill() and patch.get_linewidth() == 5 and patch.get_alpha() == 0.5


def coloured(colors):
    """A figure all of one colour for each name, one at a time."""
    return (plt.figure(figsize=(1, 0.5), facecolor=color) for color in colors)


def test_slider():
    """One picture a value, the first of them shown where `start` says; no address, no names."""
    with plt.rc_context():
        before = plt.get_fignums()
        colors, alts = coloured(["red", "lime", "blue"]), ["r", 'g "quoted"', "b"]
        how = {"label": "draws & M", "alts": alts, "start": 1, "dpi": 40}
        shown = sliders.slider(colors, [1, "a < b", 2.5], **how)
        assert plt.get_fignums() == before  # every figure was closed
    text = shown._repr_html_()
    assert repr(shown) == "<an interactive figure: open the page in a browser>"
    assert "http" not in text and " id=" not in text
    page = BeautifulSoup(text, "html.parser")
    images = page.find_all("img")
    assert [image["alt"] for image in images] == alts
    display = [image["style"].split("display:")[1] for image in images]
    assert display == ["none", "block", "none"]
    for image, color in zip(images, [(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
        kind, data = image["src"].split(",")
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        assert kind == "data:image/png;base64" and picture.mode == "P"  # few colours
        assert picture.size == (40, 20) and picture.convert("RGB").getpixel((20, 10)) == color
    (slider,) = page.find_all("input")
    assert (slider["type"], slider["min"], slider["max"]) == ("range", "0", "2")
    assert (slider["value"], slider["aria-valuetext"]) == ("1", "a < b")
    assert page.div["data-values"].split("|") == ["1", "a < b", "2.5"]
    assert page.output.get_text() == "a < b" and page.span.get_text() == "draws & M"
