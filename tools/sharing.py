"""Sphinx extension of the book: what other sites, forges and search engines read of it.

- Each page has a description, its first sentences, and tags by which a link to it shows title,
  description and picture.
- One setting, `html: baseurl` in _config.yml, says where the book is published. It is empty: then
  pages name no address. With one each page names its own (canonical), and if that is a page of
  GitHub, or `repository: url` is set too, it has buttons to edit it, to report an issue and to run
  it on Colab and Binder.
"""

import html
import re

from docutils import nodes

LENGTH = 160  # letters of a description: what search engines show
PICTURE = "_static/story.png"
LAUNCH = {
    "notebook_interface": "jupyterlab",
    "binderhub_url": "https://mybinder.org",
    "colab_url": "https://colab.research.google.com",
}
BUTTONS = "use_repository_button", "use_edit_page_button", "use_issues_button"


def repository(base, given=""):
    """The forge's address: the one given, or that of https://OWNER.github.io/NAME/; else ""."""
    found = re.fullmatch(r"https://([\w-]+)\.github\.io/([\w.-]+)/?", base)
    return given or (f"https://github.com/{found[1]}/{found[2]}" if found else "")


def buttons(base, options):
    """The theme's options that differ from those of a book without an address."""
    where = repository(base, options.get("repository_url", "")) if base else ""
    if not where:
        return {}
    branch = options.get("repository_branch") or "main"
    made = {"repository_url": where, "repository_branch": branch, "launch_buttons": LAUNCH}
    return made | dict.fromkeys(BUTTONS, True)


def description(doctree):
    """The first paragraph of a page without formulas, cut behind a word."""
    for paragraph in doctree.findall(nodes.paragraph) if doctree else ():
        plain = not next(iter(paragraph.findall(nodes.math)), None)
        if plain and isinstance(paragraph.parent, nodes.section):
            text = " ".join(paragraph.astext().split())
            return text if len(text) <= LENGTH else text[:LENGTH].rsplit(" ", 1)[0] + " ..."
    return ""


def tags(title, text, picture, address):
    """The lines of a page's head; an empty one is left out."""
    named = {"og:title": title, "og:description": text, "og:image": picture, "og:url": address}
    named = {"og:type": "article"} | {name: value for name, value in named.items() if value}
    lines = [f'<meta name="description" content="{html.escape(text)}" />'] if text else []
    lines += [
        f'<meta property="{name}" content="{html.escape(value)}" />'
        for name, value in named.items()
    ]
    return "\n".join(lines)


def set_buttons(app, config):
    config.html_theme_options.update(buttons(config.html_baseurl, config.html_theme_options))


def add_tags(app, page, template, context, doctree):
    base = app.config.html_baseurl
    picture = f"{base.rstrip('/')}/{PICTURE}" if base else context["pathto"](PICTURE, 1)
    title = re.sub(r"<[^>]+>", "", html.unescape(context.get("title", "")))
    text = description(doctree) or f"A page of {app.config.project}."
    address = context.get("pageurl") or ""
    context["metatags"] = context.get("metatags", "") + tags(title, text, picture, address)


def edit_the_text(app, page, template, context, doctree):
    """People edit a chapter's .md; its notebook is made from it."""
    for group in context["header_buttons"]:
        for button in group.get("buttons", [group]):
            if button.get("label") == "source-edit-button":
                button["url"] = re.sub(r"\.ipynb$", ".md", button["url"])


def setup(app):
    app.connect("config-inited", set_buttons)
    app.connect("html-page-context", add_tags)
    app.connect("html-page-context", edit_the_text, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
