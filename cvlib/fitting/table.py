"""A table of numbers by name: rows are parameters, columns what is said of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from ..adapters import Package

pandas = Package("pandas", extra="arviz")  # which brings it
MOST = 60  # rows that are shown
WIDTH = 80  # of a line, beyond which columns stand closer


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
        if column not in self.columns:
            raise KeyError(f"no column {column!r}: there are {', '.join(self.columns)}")
        return dict(zip(self.rows, self.columns[column]))

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
        notes = "".join(f"<p>! {escape(w)}</p>" for w in self.warnings)
        return f"<div><p>{escape(self.head)}</p><table>{rows}</table>{notes}</div>"


def _text(x, error):
    """x with three digits, or down to the second digit of its error; thousands in full."""
    if not 1e-12 < error < np.inf:
        return f"{x:.0f}" if 1e3 <= abs(x) < 1e7 else f"{x:.2g}" if abs(x) < 1e-3 else f"{x:.3g}"
    return f"{x:.{max(0, 1 - int(np.floor(np.log10(error))))}f}"
