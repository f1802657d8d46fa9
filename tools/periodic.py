"""The periodic table of chapter 7: which lines are its cells, and the table as buttons."""

import html
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from plotting import VERMILLION, ink
from sliders import Html

EXACT = "CF", "QD"  # the closed form where there is one, else quadrature
PARTNERS = ("SF",), ("RP2",), ("RB",), ("PR",), EXACT  # RP1 minus one of these, columns 0 to 4
SINGLE = ("SF",), ("RP1",), ("RP2",), ("RB",), ("PR",), EXACT  # drawn minus all data, 5 to 10
ROWS = {  # what is approximated, and how the group is called
    ("", "as it is"): ("data", "prior", "variational"),
    ("taylor_z", "Taylor in z"): ("data", "data + prior"),
    ("bound", "bound"): ("data", "data + prior"),
    ("taylor_x", "Taylor in x"): ("data",),
    ("taylor_x_slope", "Taylor in x of the slope"): ("data",),
}
# One button can be reached by the tab key, the arrow keys move on from it: to the next cell of the
# row, or to the nearest one of the row above or below. In Jupyter Lab these keys are the table's
# (data-lm-...). A notebook not yet trusted drops the tag <template>, and the words inside show.
TABLE = Path(__file__).with_suffix(".html").read_text("utf-8").rstrip("\n")
SYMBOLS = {"Miller": "Mi", "Wang": "Wa"}
KNOWN = {  # RP1 of the data term minus these: estimators with a name, no variates
    "RB": ("Lr", "Local reparameterisation in the place of RP1"),
    "PR": ("Pr", "The Bonnet-Price gradient in the place of RP1"),
    "QD": ("Qd", "Quadrature in the place of RP1"),
    "CF": ("Cf", "The closed form in the place of RP1"),
}


def rows(zoo):
    """[(group, term, {column: variate})] for the list of `catalogue.legal`, row by row."""
    pairs = {(c.approximation, c.term, frozenset(c.pair)): c for c in zoo}
    columns = [[{"RP1", m} for m in ms] for ms in PARTNERS]
    columns += [[{m, m + " all"} for m in ms] for ms in SINGLE]
    found = []
    for (approximation, group), terms in ROWS.items():
        for term in terms:
            here = {}
            for k, wanted in enumerate(columns):
                for pair in wanted:
                    if (c := pairs.get((approximation, term, frozenset(pair)))) is not None:
                        here.setdefault(k, c)
            if here:
                found.append((group, term, here))
    return found


def known(c):
    """(symbol, what it is) of a line that puts another estimator in the place of RP1(data)."""
    plain = (c.term, c.approximation, c.pair[0]) == ("data", "", "RP1")
    return KNOWN.get(c.pair[1], ("", "")) if plain else ("", "")


def symbol(c):
    """What a cell is called in two or three letters; a question mark where it has no name."""
    return SYMBOLS.get(c.name, c.name) or known(c)[0] or "?"


def look(share):
    """Colours of a cell that leaves this share of the noise: ground, and ink to read on it."""
    depth = np.log(max(share, 0.02)) / np.log(0.02)  # 0 pale, 1 dark
    ground = to_hex(colormaps["Blues_r"](0.97 - 0.85 * depth))
    return ground, to_hex(ink(ground))


def percent(share):
    """A share of the noise as a cell shows it."""
    return f"{100 * share:.0f}" if share >= 0.005 else "<1"


def interactive(zoo, left, shares, base, steps, start):
    """The table as buttons that say what a cell is: HTML without kernel or network.

    left (L, 2)    share of the noise that each line of `zoo` leaves, and its standard error
    shares (L, 3)  what of it comes from the data, from q alone and from both; base (3,): of h
    steps          {line, as it prints: plain steps that a step with it costs}
    start          the line that is shown first
    """
    place = {c.line: k for k, c in enumerate(zoo)}
    body = []
    for group, term, cells in rows(zoo):
        body.append(f'<tbody><tr><th colspan="11" scope="rowgroup">{term}, {group}</th></tr><tr>')
        for column in range(11):
            if (c := cells.get(column)) is None:
                body.append("<td></td>")
                continue
            k = place[c.line]
            ground, words = look(left[k, 0])
            shown = c.line == start
            said = f"{c.line!r}, leaves {percent(left[k, 0])} percent"
            about = _about(c, left[k], shares[k], base, steps.get(repr(c.line)))
            body.append(
                f'<td><button type="button" style="background:{ground};color:{words}"'
                f'{" class=named" if c.name else ""} aria-label="{html.escape(said)}" '
                f'aria-pressed="{str(shown).lower()}" tabindex="{0 if shown else -1}" '
                f'data-about="{html.escape(about)}">{symbol(c)}<br>'
                f"{html.escape(percent(left[k, 0]))}</button></td>"
            )
            if shown:
                first = about
        body.append("</tr></tbody>")
    heads = "".join(f'<th scope="col">{"<br>".join(ms)}</th>' for ms in (*PARTNERS, *SINGLE))
    text = TABLE.replace("{heads}", heads).replace("{frame}", VERMILLION)
    return Html(text.replace("{first}", first).replace("{body}", "".join(body)))


def _about(c, left, shares, base, steps):
    """What the panel says of one variate."""
    who = f"{c.name}: {c.published}" if c.name else known(c)[1] or "Without a name"
    text = f"leaves {100 * left[0]:.1f} &plusmn; {200 * left[1]:.1f} % of the noise of h"
    price = f"A step with it costs {steps:.1f} plain steps" if steps else "Its cost is not stored"
    price += ", with a pass over all data." if c.passes_over_data else "."
    bars = "".join(
        f"<tr><th scope=row>{name}</th><td>{_bar(b, '#767676')}{_bar(a, '#0072B2')}</td>"
        f"<td>{round(100 * b)} &rarr; {round(100 * a)}</td></tr>"
        for name, b, a in zip(("data", "q alone", "both"), base, shares, strict=True)
    )
    return (
        f"<code>{html.escape(repr(c.line))}</code><p>{html.escape(who)}. With its best weight it "
        f"{text}. It can change the noise of: {', '.join(c.noises)}. {price}</p>"
        f"<table><caption>Noise, in % of that of h, before &rarr; after</caption>{bars}</table>"
    )


def _bar(share, color):
    """A bar as long as a share of the noise."""
    width = 100 * min(max(share, 0.0), 1.0)
    return f'<span style="width:{width:.1f}%;background:{color}"></span>'
