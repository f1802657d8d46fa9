"""Each of the book's words has one meaning, and stands beside the field's at its first use."""

import re
from functools import cache

import notebooks  # tools/notebooks.py
import pytest

GLOSSARY = (notebooks.BOOK / "glossary.md").read_text("utf-8")
CHAPTERS = sorted(notebooks.BOOK.glob("[0-9]*.md"))
stem = lambda md: md.stem


@cache
def prose(md):
    """A chapter without code, labels and the names inside roles."""
    text = re.sub(r"\A---\n.*?\n---\n", "", md.read_text("utf-8"), flags=re.S)
    text = re.sub(r"\{term\}`([^`<]*)[^`]*`", r"\1", text)
    names = r"^:+\{solution[^\n]*$|^:label:[^\n]*$|^\$\$ \(eq:[^\n]*$|\{[\w:]+\}`[^`]*`"
    return re.sub(rf"^```.*?^```|{names}|`[^`\n]*`", "", text, flags=re.M | re.S)


# What a word must not mean: what to write in its place
BANNED = {
    r"\bprices?\b(?!')": "cost; the price is a stationary loss",
    r"\ba look at (all |the )?(data|rows)\b": "a pass; a look is a checkpoint",
    r"\beven (draws|points)\b(?=[^.]*(stratified|interval|hypercube))": "stratified draws",
    r"a loser could sign|no mean, of no function|worth beside the largest": "a plain sentence",
    r"minus the regression coefficient of": "a plain sentence",
}


@pytest.mark.parametrize("md", CHAPTERS, ids=stem)
def test_no_word_has_a_second_meaning(md):
    """The price is at home in chapter 15, whose theorem defines it."""
    text = prose(md)
    if "less-noise" in md.stem:
        text = re.sub(r"\bprices?\b", "", text)
    for wrong, right in BANNED.items():
        found = re.search(wrong, text)
        assert not found, f"{text[found.start() - 40 : found.end() + 20]!r}: write {right}"


FIELD = {  # our word: the field's, which stands beside it, before it or on the same screen
    r"\bswitch(es)?\b": "Bernoulli", r"\blanding\b": "[Ss]ticking the landing|STL",
    r"\b[Ee]ven draws\b": "[Mm]oment-match", r"\bparabolas?\b": "[Qq]uadratic",
    r"weights keep|share of (the |its )?draws": "effective sample size",
    r"\bSF\b": "[Ss]core function|REINFORCE", r"\bRP1\b": "[Rr]eparameteri|pathwise",
    r"\bPR\b": "Price|Bonnet", r"\bQD\b": "[Qq]uadrature", r"\bLOO\b": "[Ll]eave-one-out|RLOO",
    r"at (a|each|every) look\b": "checkpoint", r"[Oo]pposite pairs": "[Aa]ntithetic",
    r"[Rr]otated draws": "spherical-radial", r"\bprices?\b(?!')": "stationary loss",
}  # fmt: skip


@pytest.mark.parametrize("md", CHAPTERS, ids=stem)
def test_the_field_s_name_stands_beside_ours(md):
    text = prose(md)
    for ours, theirs in FIELD.items():
        if used := re.search(ours, text):
            known = re.search(theirs, text)
            assert known and known.start() < used.end() + 1500, (ours, theirs)


def test_the_glossary_has_a_column_for_the_field_s_name_and_defines_each_word():
    rows = re.findall(r"^\| \{term\}`([^`]+)` \| (.+?) \| (.*?) ?\|$", GLOSSARY, re.M)
    assert len(rows) >= 30
    defined = re.findall(r"^(\S.*)\n  \S", GLOSSARY.split("```{glossary}")[1], re.M)
    assert len(defined) == len(set(defined))
    assert {word for word, *_ in rows} <= set(defined)
    assert all(len(theirs) > 2 for _, theirs, _ in rows)
