"""The page What to do: every link leads somewhere, every line runs, and its page has it."""

import ast
import re
import warnings
from functools import partial
from textwrap import dedent
from types import SimpleNamespace

import autograd.numpy as np
import notebooks  # tools/notebooks.py
import pytest

import cvlib

PAGE = (notebooks.BOOK / "what-to-do.md").read_text("utf-8")
BLOCK = re.compile(r"^ *```python\n(.*?)^ *```$", re.M | re.S)
PRINTED = re.compile(r"```(?:\{code-cell\} ipython3|python)\n.*?^```|(?<!\})`[^`\n]+`", re.M | re.S)
TEXTS = {md: md.read_text("utf-8") for md in notebooks.BOOK.glob("*.md")}
LABELS = {
    label: md for md, text in TEXTS.items() for label in re.findall(r"^\(([\w-]+)\)=", text, re.M)
}
links = partial(re.findall, r"\{ref\}`(?:[^`<]*<)?([\w-]+)>?`")


def answers():
    """{question or case: its text}; questions have their numbers as keys."""
    which, after = PAGE.split("## And then?")
    items = re.split(r"^(\d+)\. ", which.split("(sec-who-ends-where)=")[0], flags=re.M)[1:]
    cases = re.split(r"^- \*\*", after.split("## When not")[0], flags=re.M)[1:]
    return dict(zip(items[::2], items[1::2])) | {text.split("*")[0]: text for text in cases}


ANSWERS = answers()
BLOCKS = [
    (key, ast.unparse(ast.parse(dedent(block))))
    for key, text in ANSWERS.items()
    for block in BLOCK.findall(text)
]


def called(lines):
    """[(name, call)] of a block, without the methods of arrays; those of a fit begin with a dot."""
    calls = [node for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Call)]
    found = [(re.sub(r"^fit(?=\.)", "", ast.unparse(call.func)), call) for call in calls]
    return [(n, c) for n, c in found if "." not in n or n.startswith(("cv.", "."))]


def test_ten_questions_in_order_and_every_link_leads_somewhere():
    assert [k for k in ANSWERS if k.isdigit()] == [str(k) for k in range(1, 11)]
    assert {label for label in links(PAGE) if label not in LABELS} == set()
    first = lambda words: next(k for k, text in ANSWERS.items() if words in text)
    order = [
        "a formula",
        "deep model",
        "NumPyro",
        "discrete",
        "more rows than",
        "generalised linear",
    ]
    order += ["smooth, with up to", "more than 500", "kinks"]
    places = [int(first(words)) for words in order]
    assert places == sorted(set(places))


@pytest.mark.parametrize("key, lines", BLOCKS, ids=lambda x: x[:30])
def test_a_line_is_on_a_page_that_its_question_names(key, lines):
    """Each function, with the keywords it is given, in the code of a linked page."""
    pages = [TEXTS[LABELS[label]] for label in links(ANSWERS[key])]
    pages = ["\n".join(PRINTED.findall(text)) for text in pages]
    for name, call in called(lines):
        assert any(f"{name}(" in page for page in pages), (key, name)
        for word in filter(None, (k.arg for k in call.keywords)):
            assert any(re.search(rf"\b{word}\b", page) for page in pages), (key, word)


def stand_ins():
    """A tiny one of everything that the page's lines speak of."""
    rng = np.random.default_rng(0)
    X, y, data = rng.standard_normal((30, 2)), np.sign(rng.standard_normal(30)), np.ones(20)
    log_lik = lambda p, b: -0.5 * (b[0] - p.a) ** 2 - p.tau * b[0] ** 2
    log_prior = lambda p: -(p.tau**2) - 0.1 * p.a**2
    unknowns = {"a": cvlib.real, "tau": cvlib.positive}
    model = cvlib.models.Model(log_lik, log_prior, data, parameters=unknowns)
    cv = SimpleNamespace(**vars(cvlib))
    cv.fit = lambda *args, **kwargs: cvlib.fit(*args, steps=5, progress=False, **kwargs)
    cv.choose = partial(cvlib.choose, seconds=0.02, resamples=5)
    fit, z = cv.fit(model), rng.standard_normal((400, 2))
    glm, q = cvlib.models.logistic_regression(X, y), cvlib.families.Gaussian(2)
    g, prior, variational = cvlib.terms(glm, q)
    old, w, score, f = cvlib.parabola(g, at="snapshot"), q.start(), -z, z[:, 0]
    h = cvlib.QD(g) + cvlib.CF(prior) - cvlib.CF(variational)
    Jd = cvlib.CF(old) - cvlib.CF(old.over_all_data())
    return locals()


@pytest.fixture(scope="module")
def space():
    with warnings.catch_warnings(action="ignore"):
        yield stand_ins()


@pytest.mark.parametrize("key, lines", BLOCKS, ids=lambda x: x[:30])
def test_a_line_runs(space, key, lines):
    """On a tiny model; of a function to copy, the call fits its definition."""
    if "from_numpyro" in lines:
        return  # `make adapters` has a NumPyro to run it
    if copied := [(name, call) for name, call in called(lines) if "." not in name]:
        assert all(takes(name, call) for name, call in copied)
        return
    models = {"renew": space["glm"], "Bernoulli": switches()}
    model = next((models[word] for word in models if word in lines), space["model"])
    with warnings.catch_warnings(action="ignore"):
        exec(lines, space | {"model": model})


def switches():
    q = cvlib.families.Bernoulli(2)
    return cvlib.models.Model(
        lambda z, b: -((b[0] - z[..., 0] - z[..., 1]) ** 2), q.prior(np.zeros(2)), np.ones(3), 2
    )


def takes(name, call):
    """Does the function of this name, on the page of functions to copy, take such a call?"""
    page = TEXTS[LABELS["chap-framework"]]
    found = re.search(rf"^```python\n(?:(?!^```).*\n)*?(def {name}\(.*\):)$", page, re.M)
    args = ast.parse(found[1] + " pass").body[0].args
    words = [a.arg for a in args.args]
    given = words[: len(call.args)] + [k.arg for k in call.keywords]
    return given[: len(words) - len(args.defaults)] == words[: len(words) - len(args.defaults)]


def test_who_ends_where_agrees_with_the_questions():
    """Eight readers: the question exists, and has the page and the word that the table gives."""
    rows = re.findall(r"^\| (.*?) \| ([\d, then]+) \| (.*?) \|$", PAGE, re.M)
    assert len(rows) == 8
    for who, numbers, take in rows:
        last = ANSWERS[re.findall(r"\d+", numbers)[-1]]
        assert set(links(take)) <= set(links(last)), who
        for word in re.findall(r"(?<![\w}-])`([^`{]+)`", take):
            assert word in last, (who, word)
