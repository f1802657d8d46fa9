"""Sphinx extension of the book: how long pages take to read, the pages of one day, the side bar.

- `_day.yml` lists the chapters to read if there is a day; the side bar marks them.
- The parts of the side bar fold; that of the page at hand is open.
- The role {minutes}`one-control-variate` is the reading time of a page, with a mark behind it if
  the page is one of the day; {minutes}`day` is that of the whole day, in hours.
"""

import re
from pathlib import Path

import notebooks
import yaml
from docutils import nodes

ROOT = notebooks.ROOT
MARK = "◆"
WORDS, LINES, EQUATIONS, RESULTS = 100, 12, 1, 2  # that are read in a minute

PARTS = re.compile(  # code, what is folded, and the two ends of a solution with code
    r"^(```\{code-cell\}.*?^```|:+\{solution\}.*?^:::+|:+\{solution-[^\n]+"
    r"|:+\{admonition\} [^\n]+\n:class: dropdown\n.*?^:::+)$",
    re.M | re.S,
)


def day(root=ROOT):
    """The pages to read in a day, in order."""
    file = root / "_day.yml"
    return yaml.safe_load(file.read_text("utf-8")) if file.exists() else []


def minutes(page, root=ROOT):
    """Reading time of a page, from its text; what is folded is not counted, nor are exercises."""
    text = (root / f"book/{page}.md").read_text("utf-8").split("\n## Exercises\n")[0]
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    time, solution = 0.0, False
    for part in PARTS.split(text):
        if part.startswith("```{code-cell}"):
            folded = re.search(r"tags: .*(hide|remove)-input", part)  # to a table or a figure
            code = re.sub(r"\A[^\n]*\n(---\n.*?\n---\n|(:[^\n]*\n)*)", "", part, flags=re.S)
            time += 0 if solution else 1 / RESULTS if folded else code.count("\n") / LINES
        elif fence := re.match(r":+\{solution(?:-(\w+))?\}", part):
            solution = fence[1] == "start"
        elif not solution and not re.match(r":+\{admonition\} [^\n]+\n:class: dropdown", part):
            equations = len(re.findall(r"^\$\$$", part, re.M)) // 2
            time += len(part.split()) / WORDS + equations / EQUATIONS
    return time


def minutes_role(kind, rawtext, text, lineno, inliner, options=None, content=None):
    root = Path(inliner.document.settings.env.srcdir)
    if text == "day":
        return [nodes.Text(f"{sum(minutes(page, root) for page in day(root)) / 60:.0f}")], []
    mark = f" {MARK}" * (text in day(root))
    return [nodes.Text(f"{5 * max(1, round(minutes(text, root) / 5))}{mark}")], []


def marked(side, page, pages):
    """The side bar with a mark behind each page of the day."""

    def mark(link):
        target = page if link[1] == "#" else link[1]
        on = Path(target).name.removesuffix(".html") in pages
        return link[0] + f' <span class="of-the-day" title="One day">{MARK}</span>' * on

    link = r'<a class="[^"]*\binternal\b[^"]*" href="([^"]+)">[^<]*(?=</a>)'
    return re.sub(link, mark, side)


PART = re.compile(
    r'<p\b[^>]*class="caption"[^>]*>\s*<span class="caption-text">(.*?)</span>\s*</p>\s*'
    r"(<ul\b.*?</ul>)(?=\s*(?:<p\b|</div>|\Z))",
    re.S,
)


def folded(side):
    """The side bar with parts that fold; open is the one of the page at hand."""

    def part(found):
        is_open = " open" * bool(re.search(r'<li class="[^"]*\bcurrent\b', found[2]))
        name = f'<summary class="caption"><span class="caption-text">{found[1]}</span></summary>'
        return f'<details class="part"{is_open}>{name}\n{found[2]}</details>'

    return PART.sub(part, side)


def shape_side_bar(app, page, template, context, doctree):
    made = context.get("generate_toctree_html")
    if made:
        pages = day(Path(app.srcdir))
        shaped = lambda **kwargs: folded(marked(str(made(**kwargs)), page, pages))
        context["generate_toctree_html"] = shaped


def setup(app):
    app.add_role("minutes", minutes_role)
    app.connect("html-page-context", shape_side_bar, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
