"""Figures as one picture with a slider, and printed tables, for pages that have no kernel."""

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path

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
    """Rows under titles, as HTML, and as columns of text where HTML is not shown."""

    def __init__(self, titles: Sequence[str], forms: Sequence[str | None], form: str, caption: str):
        self.forms, self.form, self.caption = forms, form, caption
        self.rows = [list(titles)]

    def add(self, *cells) -> None:
        """One more row: text as it is, numbers in their column's form, a pair as a ± b."""
        if len(cells) != len(self.forms):
            raise ValueError(f"{len(self.forms)} titles, and a row of {len(cells)} cells")
        self.rows.append([self._cell(*both) for both in zip(cells, self.forms)])

    def _cell(self, cell, form):
        if isinstance(cell, tuple):
            return " ± ".join(self._cell(part, form) for part in cell)
        if form is None:
            form = "" if isinstance(cell, str | Integral) else self.form
        return cell if isinstance(cell, str) else format(cell, form)

    def _right(self):
        """Whether a column stands at the right: numbers do, and a first column of nothing else."""
        starts = [[c[:1] in _NUMBERS for c in column[1:]] for column in zip(*self.rows)]
        return [any(column) if k else all(column) for k, column in enumerate(starts)]

    @property
    def text(self):
        right = self._right()
        words = lambda cell: html.escape(cell).replace("_", "_<wbr>")  # long names may be broken
        line = lambda cells, tag: "".join(
            f'<{tag} style="text-align:{"right" if r else "left"}">{words(cell)}</{tag}>'
            for r, cell in zip(right, cells)
        )
        body = "".join(f"<tr>{line(cells, 'td')}</tr>" for cells in self.rows[1:])
        title = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        top = f"<thead><tr>{line(self.rows[0], 'th')}</tr></thead>"
        return f"<table>{title}{top}<tbody>{body}</tbody></table>"

    def __repr__(self):
        wide = [max(map(len, column)) for column in zip(*self.rows)]
        put = lambda cell, n, right: cell.rjust(n) if right else cell.ljust(n)
        texts = ["  ".join(map(put, row, wide, self._right())).rstrip() for row in self.rows]
        return "\n".join([*filter(None, [self.caption]), *texts])


_NUMBERS = tuple("+-−.0123456789")
# All pictures are in the page and one is visible. The handler finds them from the slider itself,
# so that several sliders in one page need no names. In Jupyter Lab the arrow keys are the slider's
# (data-lm-...). Lab disables it in a notebook not yet trusted and drops the tag <template>, so that
# the words inside show just then.
_SLIDER = Path(__file__).with_suffix(".html").read_text("utf-8").rstrip("\n")


def table(
    head: str | Sequence[str], rows: Iterable[Sequence] = (), caption: str = "", form: str = ""
) -> Table:
    """A table of `rows`, and of what `add` adds, under the titles of `head`, which bars part.

    A title may end with the form of its column, "noise left:.2f"; `form` is that of the other
    numbers that are no whole ones.
    """
    titles = head.split("|") if isinstance(head, str) else head
    parts = [re.fullmatch(r"(.*?)(?::(\S+))?", title.strip()) for title in titles]
    made = Table([p[1] for p in parts], [p[2] for p in parts], form, caption)
    for row in rows:
        made.add(*row)
    return made


def _png(figure, dpi, colors):
    from PIL import Image  # comes with matplotlib

    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi)
    plt.close(figure)
    Image.open(raw).convert("RGB").quantize(colors).save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()
