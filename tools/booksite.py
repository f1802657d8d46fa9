"""Sphinx extension of the book: what makes the site whole, and one to take along.

- One file of the pinned PyPI package sphinx-mathjax-offline goes to _static/mathjax/, so that
  equations are set without a network. (Its name has hyphens, hence find_spec, not import.)
- Chapters are numbered through all parts; equations, theorems and figures of the eighth are 8.1,
  8.2 ...
- Addresses of the first edition (_redirects.yml) lead to where their pages are now.
- Docstrings are plain text (C^T h, |L_ii|, f(*args)), not markup; the API page shows them so.
- Scripts that serve live kernels from other sites are left out of the pages.
- The site carries the project and the wheel of takeaway.py: in the download menu of each page, and
  where a text says {take}`zip` or {take}`wheel`; slides.py adds {take}`slides` and {take}`figures`,
  pdf.py {take}`pdf`. In lines to paste THE-WHEEL is the wheel's name.
- A figure is a link to itself, at full size.
"""

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import notebooks
import slides
import takeaway
import yaml
from docutils import nodes
from sphinx.environment.collectors.toctree import TocTreeCollector

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the API page shows this tree's cvlib

MOVED = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>Moved</title><meta name="robots" content="noindex">
<script>location.replace("NEW" + location.hash)</script>
<noscript><meta http-equiv="refresh" content="0; url=NEW"></noscript></head>
<body><p>This page is now <a href="NEW">NEW</a>.</p></body></html>"""
number_figures = TocTreeCollector.assign_figure_numbers  # Sphinx calls it after numbering sections


def copy_mathjax(app):
    """Put the one file of MathJax that pages load into the site."""
    if app.builder.format != "html":
        return
    package = Path(find_spec("sphinx-mathjax-offline").submodule_search_locations[0])
    target = Path(app.outdir, "_static", app.config.mathjax_path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(package / "static" / app.config.mathjax_path, target)


def number_through_parts(collector, env):
    """Number chapters through all parts of the book, then equations and figures."""
    known = notebooks.numbers(Path(env.srcdir))
    for page, numbers in env.toc_secnumbers.items():
        if page in known:
            number = (known[page],)
            numbers[""] = number
            env.titles[page]["secnumber"] = number
            for reference in env.tocs[page].findall(nodes.reference):
                if reference.get("secnumber"):
                    reference["secnumber"] = number
    return number_figures(collector, env)


def shape_body(app, page, template, context, doctree):
    """No scripts of sphinx-thebe, which Jupyter Book always loads, though they name an outside
    address; the wheel's name; and, as a figure is small on a phone, a tap opens the picture."""
    for kind in "script_files", "css_files":
        files = context.get(kind, [])
        context[kind] = [f for f in files if "thebe" not in f"{f.filename} {f.attributes}".lower()]
    body = context.get("body", "").replace("THE-WHEEL", takeaway.wheel_name(Path(app.srcdir)))
    body = re.sub(r'<script type="text/x-thebe-config">.*?</script>', "", body, flags=re.S)
    picture = r'(<img\b[^>]*?\bsrc="([^"]*_images/[^"]+)"[^>]*>)(?!</a>)'
    context["body"] = re.sub(picture, r'<a class="full-size" href="\2">\1</a>', body)


def as_written(line):
    """A line of plain text as markup that shows it unchanged; `x` is code, as in Markdown."""
    parts = re.split(r"`+([^`]+)`+", line)  # words, code, words, ...
    parts[::2] = [re.sub(r"([\\*|_])", r"\\\1", words) for words in parts[::2]]
    parts[1::2] = [f"``{code}``" for code in parts[1::2]]
    return "".join(parts)


def plain_text(app, what, name, obj, options, lines):
    """Show a docstring as written: paragraphs as text, indented ones as code."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines.clear()
    for paragraph in paragraphs:
        if re.search(r"^ ", paragraph, re.M) and not paragraph.startswith("- "):
            lines += ["::", "", *("    " + line for line in paragraph.split("\n")), ""]
        else:
            lines += [*map(as_written, paragraph.split("\n")), ""]


def skip_aliases(app, what, name, obj, skip, options):
    """Fields of a NamedTuple have no words of their own to show."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field") else None


def files_to_take(app):
    """{kind: file name} of what lies in the site's top folder for readers to take."""
    wheel = takeaway.wheel_name(Path(app.srcdir))
    names = {"slides": slides.FILE, "figures": slides.FIGURES}
    return {"zip": f"{takeaway.NAME}.zip", "wheel": wheel} | names


def take(kind, rawtext, text, lineno, inliner, options=None, content=None):
    """The role {take}`zip`, or another of the names above: a link to the file, by its name."""
    env = inliner.document.settings.env
    names = files_to_take(env.app)
    if text == "pdf":  # pdf.py puts the link here once there is one
        return [nodes.raw("", '<span class="take-pdf"></span>', format="html")], []
    if text not in names:
        wrong = f"nothing to take is called {text!r}; there are {', '.join(names)}"
        return [], [inliner.reporter.error(wrong, line=lineno)]
    up = "../" * env.docname.count("/")
    return [nodes.reference("", names[text], refuri=up + names[text])], []


def add_to_download_menu(app, page, template, context, doctree):
    """Behind a page's own source: the whole project, and the package."""
    names = files_to_take(app)
    entry = lambda kind, text, tooltip, icon: {
        "type": "link", "url": context["pathto"](names[kind], 1), "text": text,
        "tooltip": tooltip, "icon": f"fas fa-{icon}", "label": f"take-{kind}",
    }  # fmt: skip
    for group in context["header_buttons"]:
        if group.get("label") == "download-buttons":
            for button in group["buttons"]:
                if button["label"] == "download-pdf-button":
                    button.update(text="print", icon="fas fa-print", tooltip="Print this page")
            group["buttons"] += [
                entry("zip", "book.zip", "All chapters, the package, its tests", "box-archive"),
                entry("wheel", "cvlib.whl", "The package alone, for pip install", "cube"),
            ]


def finish(app, error):
    """What lies beside the pages: files to take, in place of older ones; the deck and the figures,
    made of the pages; under each old address a page that leads to the new one, with the anchor that
    was asked. Chapters that are downloaded alone run with the wheel."""
    site, root = Path(app.outdir), Path(app.srcdir)
    for path in site.rglob("*.map"):  # which serve the theme's developers: a fifth of the site
        path.unlink()
    if app.builder.name != "html" or error:
        return
    if (file := root / "_redirects.yml").exists():
        for old, new in yaml.safe_load(file.read_text("utf-8")).items():
            (site / f"book/{old}.html").write_text(MOVED.replace("NEW", f"{new}.html"), "utf-8")
    for path in (*site.glob(takeaway.NAME + ".*"), *site.glob("*.whl")):
        path.unlink()
    takeaway.write(site, root)
    for notebook in (site / "_sources").rglob("*.ipynb"):
        notebook.write_text(takeaway.alone(notebook.read_text("utf-8"), root), "utf-8")
    if (root / "_slides.yml").exists():
        slides.write(site, root)


def setup(app):
    app.connect("autodoc-process-docstring", plain_text)
    app.connect("autodoc-skip-member", skip_aliases)
    TocTreeCollector.assign_figure_numbers = number_through_parts
    app.connect("builder-inited", copy_mathjax)
    app.connect("html-page-context", shape_body, priority=900)
    app.connect("html-page-context", add_to_download_menu, priority=900)
    app.add_role("take", take)
    app.add_js_file("book.js")
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
