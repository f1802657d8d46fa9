"""Figures as one picture with a slider, and printed tables, for pages that have no kernel."""

import base64
import html
import io
from collections.abc import Iterable, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def slider(
    figures: Iterable[Figure], values: Sequence, *, label: str, alts: Sequence[str], start: int = 0,
    dpi: int = 120, colors: int = 32,
) -> "Html":  # fmt: skip
    """Figures as one picture with a slider: HTML that needs neither a kernel nor a network.

    figures  iterable of figures, drawn one at a time, so a generator keeps few of them alive
    values   what the slider reads at each, shown beside it
    alts     alternative text of each
    The pictures are PNGs with few colours: small enough that forty of them fit in a page.
    """
    pictures = [_png(figure, dpi, colors) for figure in figures]
    if not len(pictures) == len(values) == len(alts):
        raise ValueError(
            f"one value and one alt text per figure: got {len(pictures)} figures, "
            f"{len(values)} values and {len(alts)} alt texts"
        )
    if not pictures:
        raise ValueError("a slider needs a figure at least; got none")
    images = "\n".join(
        f'<img src="data:image/png;base64,{data}" alt="{html.escape(alt)}" '
        f'style="width:100%;height:auto;display:{"block" if k == start else "none"}">'
        for k, (data, alt) in enumerate(zip(pictures, alts, strict=True))
    )
    return Html(
        _SLIDER.format(
            label=html.escape(label), last=len(pictures) - 1, start=start, images=images,
            value=html.escape(str(values[start])),
            values=html.escape("|".join(str(v) for v in values)),
        )
    )  # fmt: skip


class Html:
    """A piece of HTML that a notebook shows as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self):
        return self.text

    def __repr__(self):
        return "<an interactive figure: open the page in a browser>"


class Table(Html):
    """A table as HTML, and as columns of text where HTML is not shown."""

    def __init__(self, rows: list[list[str]], caption: str) -> None:
        self.rows, self.caption = rows, caption
        line = lambda cells, tag: "".join(
            f'<{tag} style="text-align:{"right" if k else "left"}">{html.escape(cell)}</{tag}>'
            for k, cell in enumerate(cells)
        )
        body = "".join(f"<tr>{line(cells, 'td')}</tr>" for cells in rows[1:])
        title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
        top = f"<thead><tr>{line(rows[0], 'th')}</tr></thead>"
        super().__init__(f"<table>{title}{top}<tbody>{body}</tbody></table>")

    def __repr__(self):
        wide = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        texts = [
            "  ".join(c.rjust(n) if k else c.ljust(n) for k, (c, n) in enumerate(zip(row, wide)))
            for row in self.rows
        ]
        return "\n".join([*filter(None, [self.caption]), *texts])


def table(head: str, rows: Iterable[Sequence], caption: str = "") -> Table:
    """Rows of text or numbers under the titles of `head`, which a bar parts."""
    titles = [title.strip() for title in head.split("|")]
    cells = [[str(cell) for cell in row] for row in rows]
    if any(len(row) != len(titles) for row in cells):
        lengths = sorted({len(row) for row in cells})
        raise ValueError(f"{len(titles)} titles, and rows of {lengths} cells")
    return Table([titles, *cells], caption)


def _png(figure, dpi, colors):
    from PIL import Image  # comes with matplotlib

    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi)
    plt.close(figure)
    Image.open(raw).convert("RGB").quantize(colors).save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


# All pictures are in the page and one is visible. The handler finds them from the slider itself,
# so that several sliders in one page need no names. In Jupyter Lab the arrow keys are the slider's
# (data-lm-...). Lab disables it in a notebook not yet trusted and drops the tag <template>, so that
# the words inside show just then.
_SLIDER = """<div class="cv-slider" data-values="{values}" style="max-width:46rem">
<label style="display:flex;gap:.75em;align-items:center;flex-wrap:wrap">
<span>{label}</span>
<input type="range" min="0" max="{last}" value="{start}" style="flex:1;min-width:8em"
 data-lm-suppress-shortcuts="true" aria-valuetext="{value}" oninput="
  const box = this.closest('.cv-slider'), k = +this.value;
  const value = box.dataset.values.split('|')[k];
  box.querySelectorAll('img').forEach((img, i) => img.style.display = i === k ? 'block' : 'none');
  box.querySelector('output').textContent = value;
  this.setAttribute('aria-valuetext', value);">
<output style="min-width:3.5em;font-variant-numeric:tabular-nums">{value}</output>
</label>
<template><em>The slider moves once you run this cell.</em></template>
{images}
</div>"""
