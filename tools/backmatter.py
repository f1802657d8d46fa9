"""Sphinx extension of the book: what the pages in its back need.

- The directive `{proof-index}` lists every theorem and lemma: by chapter, each with its title and a
  link, from the pages themselves after they are read and numbered. sphinx-proof's own index has the
  raw labels; it is left out.
- What the page `concepts` says of a theorem, an equation, an exercise or a section is an index
  entry there, so that the alphabetical index and the search lead to it, not to the glossary first.
- A page of docstrings keeps its quotes as they are typed: phi' is a derivative.
"""

import re
from collections import defaultdict
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective


class Place(nodes.General, nodes.Element):
    """Where the list will stand."""


class ProofIndex(SphinxDirective):
    def run(self):
        return [Place()]


def statements(env, page):
    """The theorems, lemmas ... of a page, in order."""
    return [n for n in env.get_doctree(page).findall(nodes.Element) if n.get("realtype")]


def link(builder, here, page, anchor, *words):
    uri = builder.get_relative_uri(here, page) + anchor
    return nodes.reference("", "", *words, refuri=uri, internal=True)


def dotted(number):
    return ".".join(map(str, number))


def entry(env, builder, here, page, node):
    """Theorem 2.1, One control variate: the first half is the link."""
    label, kind = node["label"], node["realtype"].title()
    number = dotted(env.toc_fignumbers[page][node["countertype"]][label])
    title = [child.deepcopy() for child in node[0]]  # " (", words and formulas, ")"
    title[0] = nodes.Text(title[0].astext().replace(" (", "", 1))
    title[-1] = nodes.Text(title[-1].astext().removesuffix(")"))
    name = link(builder, here, page, f"#{label}", nodes.Text(f"{kind} {number}"))
    return nodes.list_item("", nodes.paragraph("", "", name, nodes.Text(" "), *title))


def fill(app, doctree, here):
    """Put the list in its place."""
    env, builder = app.env, app.builder
    for place in list(doctree.findall(Place)):
        found = []
        for page in env.toctree_includes.get(env.config.root_doc, []):
            if proved := statements(env, page):
                number = dotted(env.toc_secnumbers[page][""])
                title = [child.deepcopy() for child in env.titles[page].children]
                heading = link(builder, here, page, "", nodes.Text(f"{number}. "), *title)
                entries = [entry(env, builder, here, page, node) for node in proved]
                found += [nodes.rubric("", "", heading), nodes.bullet_list("", *entries)]
        place.replace_self(found)
        env.get_domain("math").data["has_equations"][here] = True  # titles may hold formulas


def again(app, env, added, changed, removed):
    """A page with the list is as new as the newest page of the book, and index entries as new as
    the page that names them."""
    if any(page.endswith("concepts") for page in {*added, *changed}):
        return sorted(env.found_docs)
    return [page for page in env.found_docs if page.endswith("proofs")]


def read_concepts(app, env, docnames):
    """{label: names of concepts}, from lines `- name: {eq}`label`, ...` of the page `concepts`."""
    env.concepts = defaultdict(list)
    for page in env.found_docs:
        if Path(page).name == "concepts":
            text = Path(env.doc2path(page)).read_text("utf-8")
            for name, places in re.findall(r"^- (.+?): (.+)$", text, re.M):
                name = re.sub(r"\{term\}`(.+?)`", r"\1", name.split(", see ")[0])
                for label in re.findall(r"\}`([^`<>]+)`", places):
                    env.concepts[label].append(name)


def labels(node):
    """The labels that a concept may give as its place: of a statement, or of a section."""
    if isinstance(node, nodes.section):
        return node["ids"]
    return [node["label"]] if node.get("label") else []


class Indexed(SphinxTransform):
    """An index entry at the first place of a page that a concept names, and a main one: the search
    puts it on top. The glossary's entry for the same word comes after it."""

    default_priority = 700  # before the domains look for entries, at 850

    def apply(self):
        seen, concepts = set(), self.env.concepts
        treated = {name for names in concepts.values() for name in names}
        for index in self.document.findall(addnodes.index):
            index["entries"] = [
                (kind, name, anchor, "" if name in treated else main, key)
                for kind, name, anchor, main, key in index["entries"]
            ]
        for node in list(self.document.findall(nodes.Element)):
            for label in labels(node):
                if names := set(concepts.get(label, ())) - seen:
                    is_equation = isinstance(node, nodes.math_block)
                    anchor = nodes.make_id(f"equation-{label}") if is_equation else label
                    entries = [("single", name, anchor, "main", None) for name in sorted(names)]
                    inside = isinstance(node, nodes.section)  # behind its title
                    parent, at = (node, 1) if inside else (node.parent, node.parent.index(node))
                    parent.insert(at, addnodes.index(entries=entries))
                    seen |= names


class TypedQuotes(SphinxTransform):
    """No curly quotes on a page that shows docstrings."""

    default_priority = 700  # before the quotes are made curly, at 855

    def apply(self):
        if any(self.document.findall(addnodes.desc)):
            self.document["support_smartquotes"] = False


def one_index(app, config):
    config.html_domain_indices = ["py-modindex"]


def setup(app):
    app.add_node(Place)
    app.add_directive("proof-index", ProofIndex)
    app.add_transform(Indexed)
    app.add_transform(TypedQuotes)
    app.connect("env-before-read-docs", read_concepts)
    app.connect("config-inited", one_index)
    app.connect("env-get-outdated", again)
    app.connect("doctree-resolved", fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
