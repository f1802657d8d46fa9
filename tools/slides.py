"""The deck: slides made of the built book's own figures, theorems and formulas.

    python tools/slides.py [_build/html]        writes slides.html and figures.zip there

`_slides.yml` lists the slides. A slide has a title and any of these, shown in the order written:
`say`, lines of text with *emphasis*, $formulas$ and `code`; `code`, lines as they are; and
`figure`, `theorem` or `formula`, a label of the book or several. What a label names is copied from
the page that has it. One file, which needs nothing but the site it lies in: arrow keys turn the
slides, and printed it has a slide on each sheet. Beside it lie all figures of the book, by name.
"""

import html
import io
import re
import sys
import zipfile
from functools import cache
from pathlib import Path

import notebooks
import yaml
from bs4 import BeautifulSoup

FILE, FIGURES = "slides.html", "figures.zip"
STYLE, SCRIPT = (Path(__file__).with_suffix(kind).read_text("utf-8") for kind in (".css", ".js"))


class Book:
    """The built pages: finds what a label names."""

    def __init__(self, site):
        self.pages = {p: p.read_text("utf-8") for p in sorted((site / "book").glob("*.html"))}
        self.read = cache(lambda path: BeautifulSoup(self.pages[path], "html.parser"))

    def find(self, label):
        """The element of this label, without links and numbers of its page, and its page."""
        for path, text in self.pages.items():
            if f'id="{label}"' in text:
                found = self.read(path).find(id=label)
                for link in found.select("a.headerlink, .eqno, .phone"):
                    link.decompose()
                for link in found.select("a"):
                    link.unwrap()
                return found, path
        raise ValueError(f"_slides.yml: no page of the book has {label!r}")


def text(line):
    """A line of text as HTML."""
    line = html.escape(line, quote=False)
    line = re.sub(r"`([^`]+)`", r"<code>\1</code>", line)
    line = re.sub(r"\$([^$]+)\$", r'<span class="math">\\(\1\\)</span>', line)
    return re.sub(r"(?<![\w\\*])\*([^*]+)\*", r"<em>\1</em>", line)


def figure(found):
    picture = found.img
    source = picture["src"].removeprefix("../")
    return f'<figure><img src="{source}" alt="{html.escape(picture["alt"])}"></figure>'


def theorem(found):
    title = found.select_one(".admonition-title")
    name = re.sub(r"^\w+ [\w.]+\s*", "", title.get_text(" ", strip=True)).strip("() ")
    title.string = name or title.get_text()
    return f'<div class="theorem">{found.decode_contents()}</div>'


LABELLED = {
    "figure": ("", figure),
    "theorem": ("", theorem),
    "formula": ("equation-", lambda found: f"<div>{found.decode_contents()}</div>"),
}


def slide(entry, book):
    """One slide as an article of HTML; where its parts come from stands at its foot."""
    parts, sources = [f"<h1>{text(entry['title'])}</h1>"], []
    for kind, value in entry.items():
        if kind == "say":
            parts.append("<ul>" + "".join(f"<li>{text(line)}</li>" for line in value) + "</ul>")
        elif kind == "code":
            parts.append(f"<pre>{html.escape(value.rstrip())}</pre>")
        elif kind in LABELLED:
            prefix, shown = LABELLED[kind]
            for name in value if isinstance(value, list) else [value]:
                label = prefix + re.sub(r"[^a-z0-9]+", "-", name.lower())
                found, path = book.find(label)
                sources.append(f"book/{path.name}#{label}")
                parts.append(shown(found))
        elif kind != "title":
            raise ValueError(f"_slides.yml: {kind!r} in the slide {entry['title']!r} is unknown")
    links = ", ".join(f'<a href="{where}">in the book</a>' for where in sources)
    return f'<article>{"".join(parts)}<div class="from">{links}</div></article>'


def deck(site, root=notebooks.ROOT):
    """All slides as one page of HTML."""
    entries = yaml.safe_load((root / "_slides.yml").read_text("utf-8"))
    title = yaml.safe_load((root / "_config.yml").read_text("utf-8"))["title"]
    book = Book(site)
    sections = "\n".join(slide(entry, book) for entry in entries)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}, slides</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><script>{SCRIPT}</script>"
        '<script defer src="_static/mathjax/tex-svg-full.js"></script></head>'
        f"<body>{sections}</body></html>"
    )


def figures(site):
    """Every picture with a label, under that name, and the captions: bytes of a zip."""
    made, captions = io.BytesIO(), []
    pattern = r'<figure[^>]*? id="(fig-[\w-]+)">(.*?)</figure>'
    with zipfile.ZipFile(made, "w") as packed:
        for path in sorted((site / "book").glob("*.html")):
            for label, inside in re.findall(pattern, path.read_text("utf-8"), re.S):
                found = BeautifulSoup(inside, "html.parser")
                if found.img and found.figcaption and "_images/" in found.img["src"]:
                    picture = site / "_images" / Path(found.img["src"]).name
                    packed.write(picture, f"figures/{label}{picture.suffix}")
                    caption = " ".join(found.figcaption.get_text().rstrip("#").split())
                    captions.append(f"{label}: {caption}\n")
        packed.writestr("figures/captions.txt", "\n".join(captions))
    return made.getvalue()


def write(site, root=notebooks.ROOT):
    (site / FILE).write_text(deck(site, root), "utf-8")
    (site / FIGURES).write_bytes(figures(site))


def main():
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html")
    if not (site / "index.html").exists():
        sys.exit(f"{site} has no book: make book first")
    write(site)
    print(f"slides: open {site / FILE}")


if __name__ == "__main__":
    main()
