"""What is shown: an answer with its error; a table, whose rows are parameters, with many."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from ..adapters import Package
from ..models.parameters import labels

pandas = Package("pandas", extra="arviz")  # which brings it
MOST = 60  # rows that are shown
WIDTH = 80  # of a line, beyond which columns stand closer
TAILS = {"5 %": 0.05, "50 %": 0.5, "95 %": 0.95}
GOOD, DOUBT = ("✓", "#1a8f5a"), ("!", "#b87000")  # signs, and colours for pages light and dark


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """An estimate with its standard error, arrays of one shape, and what to think of them.

    `se` is the root of the variance and of the square of the bias that the jackknife removed.
    `order` of the variates, `n` draws, `k_hat` of the weights' tail (NaN without weights), `k_f`
    that of weight times f, or of what variates leave of it if that is shorter. `before` and `after`
    are effective sample sizes: so many independent draws of p give the error of these draws as they
    are, and that of the answer. `warnings` say what is wrong and what to do.
    """

    estimate: np.ndarray
    se: np.ndarray
    k_hat: float
    order: int
    n: int
    warnings: tuple[str, ...] = ()
    k_f: Any = np.nan
    before: Any = np.nan
    after: Any = np.nan
    name: str = ""  # of the parameter whose mean it is

    def __repr__(self) -> str:
        pairs = [_shown(*x) for x in zip(np.ravel(self.estimate), np.ravel(self.se))]
        tail = "" if np.isnan(self.k_hat) else f", k-hat {self.k_hat:.2f}"
        head = f"{pairs[0]}  " if np.ndim(self.estimate) == 0 else ""
        lines = [f"{head}({self.n} draws, variates of order {self.order}{tail})"]
        if not head:
            names = (f"  {x} " for x in labels(self.name, np.shape(self.estimate)))
            lines += [a + b for a, b in zip(names, pairs[:20])] + ["  ..."] * (len(pairs) > 20)
        return "\n".join([*lines, *(f"! {w}" for w in self.warnings)])


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Columns (n,) by name, for n rows by name: table["mean"]["sigma"], as in a frame of pandas.

    `errors` has the column of errors of a column: digits end there. Columns that are `hidden` are
    not printed. `head` stands above the table, `warnings` below.
    """

    rows: list[str]
    columns: dict[str, np.ndarray]
    errors: Mapping[str, str] = field(default_factory=dict)
    head: str = ""
    warnings: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def __getitem__(self, column: str) -> dict[str, float]:
        if column not in [*self.columns]:  # which may be of any kind, a list of names, say
            row = column in self.rows
            write = f"; for the row write table['mean'][{column!r}]" if row else ""
            raise KeyError(f"no column {column!r}: there are {', '.join(self.columns)}{write}")
        return Column(zip(self.rows, self.columns[column]))

    def __iter__(self):
        return iter(self.columns)

    def frame(self) -> Any:
        """The same as a frame of pandas."""
        return pandas.DataFrame(self.columns, index=self.rows)

    def _cells(self):
        """Lines of texts, the first with the names of the columns."""
        none, of = np.zeros(len(self.rows)), lambda name: self.errors.get(name, "")
        shown = {
            k: [*map(_text, x, self.columns.get(of(k), none))]
            for k, x in self.columns.items()
            if k not in self.hidden
        }
        lines = [("", *shown), *zip(self.rows, *shown.values())]
        return lines if len(lines) <= MOST + 1 else [*lines[: MOST + 1], ["..."] * len(lines[0])]

    def __repr__(self):
        lines = self._cells()
        wide = [max(map(len, column)) for column in zip(*lines)]
        gap = "  " if sum(wide) + 2 * len(wide) <= WIDTH + 2 else " "
        row = lambda name, *x: gap.join([name.ljust(wide[0]), *map(str.rjust, x, wide[1:])])
        above, below = [self.head] * bool(self.head), [f"! {w}" for w in self.warnings]
        return "\n".join([*above, *(row(*line) for line in lines), *below])

    def _repr_html_(self):
        cell = lambda x: f'<td style="text-align: right; padding: 0 0.4em">{escape(x)}</td>'
        rows = "".join(f"<tr>{''.join(map(cell, line))}</tr>" for line in self._cells())
        head = f"<p>{escape(self.head)}</p>" if self.head else ""
        notes = "".join(note(DOUBT, w) for w in self.warnings)
        return f"<div>{head}<table>{rows}</table>{notes}</div>"


class Column(dict[str, float]):
    """Numbers by row, a label that is a number by itself too; no row's name is told the rows."""

    def __missing__(self, row):
        if not isinstance(row, str) and str(row) in self:
            return self[str(row)]
        more = ", ..." * (len(self) > MOST)
        raise KeyError(f"no row {row!r}: there are {', '.join([*self][:MOST])}{more}")


def note(of: tuple[str, str], text: str) -> str:
    """Lines of text for a notebook, behind a coloured bar and a sign, in the page's own ink."""
    sign, colour = of
    box = f"border-left: 5px solid {colour}; background: {colour}26; padding: 0.2em 0.6em"
    return f'<p style="{box}"><b>{sign}</b> {escape(text).replace(chr(10), "<br>")}</p>'


def _shown(x, se):
    """x ± se, with two digits of the error."""
    if (digits := _digits(se)) is None:
        return f"{x:.6g} ± {se:.1g}"
    return f"{x:.{digits}f} ± {se:.{digits}f}"


def _text(x, error):
    """x with three digits, or down to the second digit of its error; thousands in full."""
    if (digits := _digits(error)) is None:
        return f"{x:.0f}" if 1e3 <= abs(x) < 1e7 else f"{x:.2g}" if abs(x) < 1e-3 else f"{x:.3g}"
    return f"{x:.{digits}f}"


def _digits(error):
    """Decimals down to the second digit of an error, if it is one and no rounding."""
    return max(0, 1 - int(np.floor(np.log10(error)))) if 1e-12 < error < np.inf else None
