"""The page What to do: every link leads somewhere, every line runs, and its section has it."""

import ast
import re
import warnings
from functools import partial
from textwrap import dedent
from types import SimpleNamespace

import autograd.numpy as np
import notebooks  # tools/notebooks.py
import pytest
from autograd.scipy.special import logsumexp

import cvlib

PAGE = (notebooks.BOOK / "what-to-do.md").read_text("utf-8")
BLOCK = re.compile(r"^ *```python\n(.*?)^ *```$", re.M | re.S)
BEGINS = r"```(?:\{code-cell\} ipython3|python)\n"
CELL = re.compile(rf"^{BEGINS}(?::tags:[^\n]*\n)?(.*?)^```$", re.M | re.S)
PRINTED = re.compile(rf"{BEGINS}.*?^```|(?<!\}})`[^`\n]+`", re.M | re.S)
TEXTS = [md.read_text("utf-8") for md in notebooks.BOOK.glob("*.md")]
PAGE_OF = {label: text for text in TEXTS for label in re.findall(r"^\(([\w-]+)\)=", text, re.M)}
links = partial(re.findall, r"\{ref\}`(?:[^`<]*<)?([\w-]+)>?`")
which, after = PAGE.split("## And then?")
items = re.split(r"^(\d+)\. ", which.split("## Which line?")[1], flags=re.M)[1:]
cases = re.split(r"^- \*\*", after.split("## When not")[0], flags=re.M)[1:]
# {question or case: its text}; questions have their numbers as keys
ANSWERS = dict(zip(items[::2], items[1::2])) | {text.split("*")[0]: text for text in cases}
tidy = lambda block: ast.unparse(ast.parse(dedent(block)))
BLOCKS = [(key, tidy(block)) for key, text in ANSWERS.items() for block in BLOCK.findall(text)]


def called(lines):
    """[(name, call)] of a block, without the methods of arrays; those of a fit begin with a dot."""
    calls = [node for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Call)]
    found = [(re.sub(r"^fit(?=\.)", "", ast.unparse(call.func)), call) for call in calls]
    return [(n, c) for n, c in found if "." not in n or n.startswith(("cv.", "."))]


def test_ten_questions_in_order_and_every_link_leads_somewhere():
    assert [k for k in ANSWERS if k.isdigit()] == [str(k) for k in range(1, 11)]
    assert {*links(PAGE)} <= PAGE_OF.keys()
    first = lambda words: next(k for k, text in ANSWERS.items() if words in text)
    order = "a formula; deep model; NumPyro; discrete; more rows than; generalised linear; kinks"
    order += "; smooth, with up to; more than 500"
    places = [int(first(words)) for words in order.split("; ")]
    assert places == sorted(set(places))


def section(label):
    """The text under a label, to the next heading of its level that is not in code."""
    text = PAGE_OF[label].split(f"({label})=\n")[1]
    level = len(re.match("#+", text)[0])
    bare = re.sub(r"^```.*?^```$", lambda block: "x" * len(block[0]), text, flags=re.M | re.S)
    later = re.search(rf"^#{{1,{level}}} ", bare[level:], re.M)
    return text[: level + later.start()] if later else text


@pytest.mark.parametrize("key, lines", BLOCKS, ids=lambda x: x[:30])
def test_a_line_is_in_a_section_that_its_question_names(key, lines):
    labels = [label for label in links(ANSWERS[key]) if not label.startswith("chap-")]
    parts = ["\n".join(PRINTED.findall(section(label))) for label in labels]
    for name, call in called(lines):
        assert any(f"{name}(" in part for part in parts), (key, name)
        for word in filter(None, (k.arg for k in call.keywords)):
            assert any(re.search(rf"\b{word}\b", part) for part in parts), (key, word)


@pytest.fixture(scope="module")
def space():
    """A tiny one of everything that the page's lines speak of."""
    rng = np.random.default_rng(0)
    X, y, data = rng.standard_normal((30, 2)), np.sign(rng.standard_normal(30)), np.ones(20)
    log_joint = lambda z, data: -((data[0] @ z - data[1]) ** 2).sum() - (z**2).sum()
    counts, d = np.arange(30.0), 2
    log_lik = lambda p, b: -0.5 * (b[0] - p.a) ** 2 - p.tau * b[0] ** 2
    log_prior = lambda p: -(p.tau**2) - 0.1 * p.a**2
    unknowns = {"a": cvlib.real, "tau": cvlib.positive}
    model = cvlib.models.Model(log_lik, log_prior, data, parameters=unknowns)
    cv = SimpleNamespace(**{name: getattr(cvlib, name) for name in cvlib.__all__})
    cv.fit = lambda *args, **kwargs: cvlib.fit(*args, steps=5, progress=False, **kwargs)
    cv.choose = partial(cvlib.choose, seconds=0.02, resamples=5)
    with warnings.catch_warnings(action="ignore"):
        fit = thin = cv.fit(model)
    z = rng.standard_normal((400, 2))
    miss = lambda z, b: -((b[0] - z[..., 0] - z[..., 1]) ** 2)
    prior = cvlib.families.Bernoulli(2).prior(np.zeros(2))
    switches = cvlib.models.Model(miss, prior, np.ones(3), 2)
    glm, q = cvlib.models.logistic_regression(X, y), cvlib.families.Gaussian(2)
    g, prior, variational = cvlib.terms(glm, q)
    old, w, score, f = cvlib.parabola(g, at="snapshot"), q.start(), -z, z[:, 0]
    h = cvlib.QD(g) + cvlib.CF(prior) - cvlib.CF(variational)
    Jd = cvlib.CF(old) - cvlib.CF(old.over_all_data())
    return {"np": np} | locals()


@pytest.mark.parametrize("key, lines", BLOCKS, ids=lambda x: x[:30])
def test_a_line_runs(space, key, lines, tmp_path, monkeypatch):
    """On a tiny model, or on a tiny one of what the function to copy takes."""
    if "from_numpyro" in lines:
        return  # `make adapters` has a NumPyro to run it
    if {name for name, _ in called(lines)} & DEFINED.keys():
        return run_copied(lines)
    if "from_jax" in lines:
        pytest.importorskip("jax")
    models = {"renew": space["glm"], "Bernoulli": space["switches"]}
    model = next((models[word] for word in models if word in lines), space["model"])
    write_rows(tmp_path, monkeypatch)
    some = {"model": model} | ({"d": 1, "K": 2} if "Categorical" in lines else {})
    with warnings.catch_warnings(action="ignore"):
        exec(lines.replace("1000000", "2000"), space | some)


def write_rows(folder, monkeypatch):
    """The files of a line through 2,000 points, in the folder where the lines look for them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000)
    for name, array in ("x", x), ("y", 0.5 + 2 * x + 0.3 * rng.standard_normal(2000)):
        array.tofile(folder / f"{name}.bin")
    monkeypatch.chdir(folder)


def defined(label):
    """{name: [functions of that name]} that stand in the code of a page."""
    found = {}
    for block in CELL.findall(PAGE_OF[label]):
        for node in ast.parse(block).body if "def " in block and "---\n" not in block else ():
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
    return found


DEFINED = defined("chap-own-model") | defined("chap-framework")


def run_copied(lines):
    """Each line alone: the call fits the function, in JAX and in PyTorch."""
    for node in ast.parse(lines).body:
        line = ast.unparse(node)
        ((name, call),) = [(n, c) for n, c in called(line) if n in DEFINED]
        words = [[a.arg for a in one.args.args] for one in DEFINED[name]]
        given = [ast.unparse(a) for a in call.args] + [k.arg for k in call.keywords]
        needed = len(words[0]) - len(DEFINED[name][0].args.defaults)
        assert len(given) == needed and len({len(some) for some in words}) == 1, line
        if name == "fit":  # its page runs it; its arguments are `key` or `generator`
            assert given in [some[:needed] for some in words], line
        elif name == "normal":
            judge_mixture(line)
        else:
            judge_copied(name, line)


def judge_copied(name, line):
    """It runs on NumPy's arrays, and DisARM's terms have their signs; numbers: test_frameworks."""
    nn = SimpleNamespace(sigmoid=lambda x: 1 / (1 + np.exp(-x)))
    space = {"jax": SimpleNamespace(nn=nn), "lax": SimpleNamespace(stop_gradient=lambda x: x)}
    rewards, b, w = np.array([1.0, 0, 0, 1]), np.eye(4)[:, None, :2], np.array([[1.0, 3.0]])
    space |= dict(rewards=rewards, log_pi=np.arange(4.0), m=0.3)
    space |= dict(f=rewards[:, None], b=b, w=w, divergence=0.25)
    exec(f"{ast.unparse(DEFINED[name][0])}\n{line}", space)  # the first of a name is in JAX
    if name == "disarm":  # in the pairs 0, 2 and 1, 3 f differs by 1, -1 and one switch by 1
        surrogate = (nn.sigmoid(1.0) * 1 - nn.sigmoid(3.0) * 3) / 4
        assert np.isclose(space["elbo"], 0.5 + surrogate - 0.25)
    else:
        assert np.isfinite(space["loss"])


def judge_mixture(line):
    """At one point: the sum over both labels, by hand."""
    space = {"np": np, "logsumexp": logsumexp}
    exec(f"{ast.unparse(DEFINED['normal'][0])}\n{line}", space)
    share, centre, sd, y = np.array([0.3, 0.7]), np.array([-1.0, 2.0]), 0.8, np.array([0.4, 1.0])
    p = SimpleNamespace(share=share, centre=centre, sd=np.array(sd))
    bells = share * np.exp(-0.5 * ((y[:, None] - centre) / sd) ** 2) / sd
    assert np.allclose(space["mixed_lik"](p, (y,)), np.log(bells.sum(1)))


def test_many_rows_of_the_chapter_run_from_files(tmp_path, monkeypatch):
    """The block of the page, on 2,000 rows: least squares has the same line."""
    text = PAGE_OF["sec-own-rows"].split("(sec-own-rows)=")[1]
    write_rows(tmp_path, monkeypatch)
    fitted = partial(cvlib.fit, steps=10, progress=False)
    space = {"np": np, "positive": cvlib.positive, "cv": SimpleNamespace(**vars(cvlib))}
    space["cv"].fit = lambda model, seconds: fitted(model)
    exec(ast.unparse(DEFINED["normal"][0]), space)
    with warnings.catch_warnings(action="ignore"):
        exec(BLOCK.search(text)[1].replace("1_000_000", "2000"), space)
    slope, height = np.polyfit(space["x"], space["y"], 1)
    assert np.abs(space["fit"].mean[:2] - [height, slope]).max() < 0.002


def test_who_ends_where_agrees_with_the_questions():
    """Eight readers: the question exists, and has the page and the word that the table gives."""
    rows = re.findall(r"^\| (.*?) \| ([\d, then]+) \| (.*?) \|$", PAGE, re.M)
    assert len(rows) == 8
    for who, numbers, take in rows:
        last = " ".join(ANSWERS[number] for number in re.findall(r"\d+", numbers))
        assert set(links(take)) <= set(links(last)), who
        for word in re.findall(r"(?<![\w}-])`([^`{]+)`", take):
            assert word in last, (who, word)
