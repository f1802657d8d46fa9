"""Sphinx extension of the book: the short path through it, and how long pages take to read.

- `_path.yml` lists the stops of the short path. Each of these pages gets a sign on top (which stop,
  what to read, what to know, where next), one wherever the path leaves it, and one at its end that
  says what the stop has said; sections off the path have the class `off-path`, by which
  tools/pdf.py prints the path alone.
- The side bar marks the stops.
- The role {minutes}`02-one-control-variate` is the reading time of a page, and behind a mark that
  of its part on the path; {minutes}`path` is that of the whole path.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import notebooks
import yaml
from docutils import nodes
from sphinx.errors import ExtensionError

ROOT = notebooks.ROOT
MARK = "◆"
WORDS, LINES, EQUATIONS, RESULTS = 100, 12, 1, 2  # that are read in a minute


PARTS = re.compile(  # headings, code, what is folded, and the two ends of a solution with code
    r"^(## [^\n]+|```\{code-cell\}.*?^```|:+\{solution\}.*?^:::+|:+\{solution-[^\n]+"
    r"|:+\{admonition\} [^\n]+\n:class: dropdown\n.*?^:::+)$",
    re.M | re.S,
)


class Stop(NamedTuple):
    page: str
    first: str  # the heading to begin with; "" is the top of the page
    last: str
    also: list  # later headings
    needs: str  # what it uses of the chapters left out
    ends: str  # what it said, to end on
    read: set  # all headings to read, "" for what stands before the first


@cache
def sections(page, root=ROOT):
    """{heading: minutes} of a page, in order, from its text; what is folded is not counted."""
    text = re.sub(
        r"\A---\n.*?\n---\n", "", (root / f"book/{page}.md").read_text("utf-8"), flags=re.S
    )
    found, here, solution = {"": 0.0}, "", False
    for part in PARTS.split(text):
        if part.startswith("## "):
            here = part[3:].strip()
            found[here] = 0.0
        elif part.startswith("```{code-cell}"):
            folded = re.search(r"tags: .*(hide|remove)-input", part)  # to a table or a figure
            code = re.sub(r"\A[^\n]*\n(---\n.*?\n---\n|(:[^\n]*\n)*)", "", part, flags=re.S)
            time = 1 / RESULTS if folded else code.count("\n") / LINES
            found[here] += 0.0 if solution else time
        elif fence := re.match(r":+\{solution(?:-(\w+))?\}", part):
            solution = fence[1] == "start"
        elif not solution and not re.match(r":+\{admonition\}", part):
            equations = len(re.findall(r"^\$\$$", part, re.M)) // 2
            found[here] += len(part.split()) / WORDS + equations / EQUATIONS
    return found


def stops(root=ROOT):
    """The stops in order; a heading that its page does not have is an error."""
    found = []
    file = root / "_path.yml"
    for line in yaml.safe_load(file.read_text("utf-8")) if file.exists() else []:
        page, first, last = line["page"], line.get("from", ""), line["until"]
        also, titles = line.get("also", []), list(sections(page, root))
        if missing := [title for title in (first, last, *also) if title not in titles]:
            raise ExtensionError(f"_path.yml: {page} has no section {missing[0]!r}")
        read = {*titles[titles.index(first) : titles.index(last) + 1], *also}
        found.append(Stop(page, first, last, also, line.get("needs", ""), line["ends"], read))
    return found


def minutes(page, root=ROOT):
    """Reading time of a page, to five minutes."""
    return fives(sum(sections(page, root).values()))


def fives(time):
    return 5 * max(1, round(time / 5))


def time_of(stop, root=ROOT):
    """Minutes for a stop: its sections, what it needs, and what it ends on."""
    times = sections(stop.page, root)
    signs = len(f"{stop.needs} {stop.ends}".split()) / WORDS
    return sum(times[title] for title in stop.read) + signs


# What the pages show ------------------------------------------------------------------------------


def minutes_role(kind, rawtext, text, lineno, inliner, options=None, content=None):
    env = inliner.document.settings.env
    path = {stop.page: time_of(stop, Path(env.srcdir)) for stop in env.stops}
    if text == "path":
        return [nodes.Text(f"{sum(path.values()) / 60:.1f}")], []
    own = f" ({MARK}\u00a0{fives(path[text])})" if text in path else ""
    return [nodes.Text(f"{minutes(text, Path(env.srcdir))}{own}")], []


def link(app, here, stop):
    """A link to a stop: its number and title, to its first section on the path."""
    page, env = f"book/{stop.page}", app.env
    number = env.toc_secnumbers.get(page, {}).get("")
    title = env.titles[page].astext()
    anchors = {plain(r.astext()): r["anchorname"] for r in env.tocs[page].findall(nodes.reference)}
    uri = app.builder.get_relative_uri(here, page) + (stop.first and anchors[plain(stop.first)])
    name = f"{number[0]}. {title}" if number else title
    return nodes.reference("", "", nodes.Text(name), refuri=uri, internal=True)


def words(text):
    """A sentence of _path.yml: *emphasis*, $formulas$ and `code`."""
    made = {"*": nodes.emphasis, "$": nodes.math, "`": nodes.literal}
    for part in re.split(r"(\*[^*]+\*|\$[^$]+\$|`[^`]+`)", text):
        inner = part[1:-1]
        yield made[part[0]](inner, inner) if part[:1] in made else nodes.Text(part)


def quoted(*titles):
    """Headings in a sentence, each in italics."""
    for k, title in enumerate(titles):
        yield nodes.Text(", " if k else "")
        yield nodes.emphasis("", "", *words(title))


def sign(*parts, kind="short-path"):
    made = [part if isinstance(part, nodes.Node) else nodes.Text(part) for part in parts]
    return nodes.container("", nodes.paragraph("", "", *made), classes=kind.split())


def plain(title):
    """A heading as typed, or as a page has it (formulas set, quotes curly), to compare the two."""
    return title.replace("$", "").replace("\u2019", "'")


def put_signs(app, doctree, here):
    """On a page of the path: a sign on top, one where it leaves, a class for what it skips."""
    path = app.env.stops
    k = next((k for k, stop in enumerate(path) if f"book/{stop.page}" == here), None)
    if k is None:
        return
    stop, top = path[k], next(doctree.findall(nodes.section))
    after = path[k + 1 : k + 2]
    ahead = ["Next stop: ", link(app, here, after[0]), "."] if after else ["It is the last one."]
    read, on = set(map(plain, stop.read)), "" in map(plain, stop.read)
    titles = {plain(child[0].astext()): child for child in top if isinstance(child, nodes.section)}
    for child in top[1:]:
        if isinstance(child, nodes.section):
            was_on, title = on, plain(child[0].astext())
            on = title in read
            left = [t for t in stop.also if top.index(titles[plain(t)]) >= top.index(child)]
            if was_on and not on and left:
                leave = f"{MARK} The short path goes on below with "
                top.insert(top.index(child), sign(leave, *quoted(*left), "."))
        if not on and isinstance(child, nodes.Element):
            child["classes"].append("off-path")
    last = titles[plain((stop.also or [stop.last])[-1])]
    said = sign(nodes.strong("", f"{MARK} What this stop said. "), *words(stop.ends), " ", *ahead,
                kind="short-path ends")  # fmt: skip
    top.insert(top.index(last) + 1, said)
    top.insert(1, first_sign(app, stop, k, len(path), ahead))


def first_sign(app, stop, k, number, ahead):
    """Which stop it is, how long, what to read, and what it needs of the chapters left out."""
    begin = ["Read from ", *quoted(stop.first), " to"] if stop.first else ["Read to"]
    one = stop.first and stop.first == stop.last
    begin = ["Read ", *quoted(stop.first)] if one else [*begin, " the end of ", *quoted(stop.last)]
    then = [", then ", *quoted(*stop.also)] if stop.also else []
    needs = [" Of the chapters left out you need: ", *words(stop.needs)] if stop.needs else []
    return sign(
        nodes.strong("", f"{MARK} On the short path, stop {k + 1} of {number}."),
        f" About {fives(time_of(stop, Path(app.srcdir)))} minutes. ", *begin, *then, ".",
        *needs, " ", *ahead,
    )  # fmt: skip


def mark_side_bar(app, page, template, context, doctree):
    """A mark behind each stop in the side bar."""
    made = context.get("generate_toctree_html")
    if not made:
        return
    stems = {stop.page for stop in app.env.stops}

    def marked(**kwargs):
        def mark(link):
            target = page if link[1] == "#" else link[1]
            on = Path(target).name.removesuffix(".html") in stems
            return link[0] + f' <span class="on-path" title="On the short path">{MARK}</span>' * on

        return re.sub(r'<a class="[^"]*\binternal\b[^"]*" href="([^"]+)">[^<]*(?=</a>)', mark,
                      str(made(**kwargs)))  # fmt: skip

    context["generate_toctree_html"] = marked


def read_path(app, env, docnames):
    env.stops = stops(Path(app.srcdir))


def setup(app):
    app.add_role("minutes", minutes_role)
    app.connect("env-before-read-docs", read_path)
    app.connect("doctree-resolved", put_signs)
    app.connect("html-page-context", mark_side_bar, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
