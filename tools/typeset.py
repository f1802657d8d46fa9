"""Sphinx extension of the book: what is set on a page otherwise than its text says.

- A reference to a chapter shows its number: "Chapter 8" in a sentence, with the title as tooltip,
  and "8. Best weights" in a table.
- A slider is a figure: it has a number, and a caption of its own or its label.
- A number in a table and its error are not parted.
- A formula broken in two lines for phones has one on a wide screen and on paper, if it fits there.
"""

import html
import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

FITS = 62  # characters of a formula in a line, at most


# References ---------------------------------------------------------------------------------------


def number_references(app, doctree, here):
    """Put the number of its chapter or appendix into each reference that shows a page's title."""
    env = app.env
    pages = {app.builder.get_relative_uri(here, page): page for page in env.titles}
    for reference in doctree.findall(nodes.reference):
        page = pages.get(str(reference.get("refuri", "")).split("#")[0])
        number = env.toc_secnumbers.get(page, {}).get("")
        if not number or reference.astext() != env.titles[page].astext():
            continue
        number, title = number[0], reference.astext()
        in_table = isinstance(reference.parent.parent, nodes.entry)
        kind = "Chapter" if isinstance(number, int) or number.isdigit() else "Appendix"
        text = f"{number}. {title}" if in_table else f"{kind} {number}"
        reference.children = []
        reference += nodes.inline("", text, classes=["std", "std-ref"])
        reference["reftitle"] = title


# Sliders ------------------------------------------------------------------------------------------


class Captions(SphinxTransform):
    """A slider that its cell did not make a figure becomes one, with its label as the caption."""

    default_priority = 210  # before ids and numbers are given out

    def apply(self):
        made = 0
        for raw in list(self.document.findall(nodes.raw)):
            label = re.search(r'class="cv-slider".*?<span>(.*?)</span>', raw.astext(), re.S)
            if not label:
                continue
            made += 1
            parent = raw.parent
            while not isinstance(parent, nodes.figure | nodes.document):
                parent = parent.parent
            if isinstance(parent, nodes.figure):
                continue
            what = html.unescape(label[1])
            screen = nodes.inline("", f"Move the slider to change: {what}.", classes=["on-screen"])
            paper = nodes.inline("", f"One of several settings of: {what}.", classes=["on-paper"])
            caption = nodes.caption("", "", screen, paper)
            figure = nodes.figure("", caption, ids=[f"slider-{made}"])
            raw.replace_self(figure)
            figure.insert(0, raw)


# Formulas -----------------------------------------------------------------------------------------

SPACE = r"(?:\\q?quad|\\[;,!: ]|\{\}|\s)*"
GOES_ON = re.compile(rf"\s*&{SPACE}(?=[-+=<>]|\\(?:le|ge|approx|cdot|times|sim|to)\b)(.*)", re.S)
RELATION = re.compile(r"\s*(?:[=<>]|\\(?:le|ge|approx|sim|to)\b)")
BROKEN = re.compile(
    r"\\\[\\begin\{split\}\s*(\\begin\{aligned\}.*?\\end\{aligned\})\s*\\end\{split\}\\\]", re.S
)


def length(tex):
    """About how many characters a formula is wide."""
    tex = re.sub(r"\\(?:under|over)brace\{(.*?)\}_\{.*?\}", r"\1", tex)
    tex = re.sub(
        r"\\(?:mathbb|mathrm|mathcal|text|textstyle|big[lr]?|Big[lr]?|left|right)\b", "", tex
    )
    for _ in range(3):  # the longer half of a fraction, half of what stands low or high
        tex = re.sub(r"[\^_](\{[^{}]{2,}\})", lambda m: m[1][: len(m[1]) // 2 + 1], tex)
        tex = re.sub(
            r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", lambda m: max(m.groups(), key=len), tex
        )
        tex = re.sub(r"\{([^{}]*)\}", r"\1", tex)
    tex = re.sub(r"\\(log|exp|tr|le|ge|approx|sim|to)\b", "xxx", tex)
    tex = re.sub(r"\\[a-zA-Z]+|\\.", "x", re.sub(r"[\s&^_{}]", "", tex))
    return len(re.sub(r"[-+=]", "xxx", tex))


def joined(tex):
    """An aligned formula with each line that goes on with the one before joined to it, if the two
    are no wider than a page. A chain of equalities stays one: its signs stand below each other."""
    inside = tex.removeprefix(r"\begin{aligned}").removesuffix(r"\end{aligned}")
    first, *rest = re.split(r"\\\\", inside)
    head, _, tail = first.partition("&")
    is_chain = head.strip() and RELATION.match(tail)
    rows = [first]
    for row in rest:
        more, before = GOES_ON.fullmatch(row), rows[-1].rstrip()
        both = f"{before} {more[1]}" if more else ""
        if (
            more
            and not (is_chain and RELATION.match(more[1]))
            and before[-1] not in ",;."
            and length(both) <= FITS
        ):
            rows[-1] = both
        else:
            rows.append(row)
    return r"\begin{aligned}" + r"\\".join(rows) + r"\end{aligned}"


def widen(app, page, template, context, doctree):
    """Beside a formula broken for phones put the one for wide screens; a style sheet chooses."""

    def both(found):
        narrow = html.unescape(found[1])
        if (wide := joined(narrow)) == narrow:
            return found[0]
        return (
            rf'<span class="wide-screen">\[{html.escape(wide, quote=False)}\]</span>'
            f'<span class="phone">{found[0]}</span>'
        )

    context["body"] = BROKEN.sub(both, context.get("body", ""))


def setup(app):
    app.add_transform(Captions)
    app.connect("doctree-resolved", number_references)
    app.connect("html-page-context", widen, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
