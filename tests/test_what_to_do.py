"""The page What to do: every link leads somewhere, every block runs as it stands."""

import re
import warnings
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import harness
import notebooks  # tools/notebooks.py
import numpy as np
import pytest

import cvlib
from cvlib.fitting import lots

PAGE = (notebooks.BOOK / "what-to-do.md").read_text("utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
TEXTS = [md.read_text("utf-8") for md in notebooks.BOOK.glob("*.md")]
LABEL = re.compile(r"^\(([\w-]+)\)=|^:label: ([\w-]+)", re.M)
LABELS = {"".join(found) for text in TEXTS for found in LABEL.findall(text)}
links = partial(re.findall, r"\{ref\}`(?:[^`<]*<)?([\w-]+)>?`")
SECTIONS = dict(re.findall(r"^\((sec-todo-[\w-]+)\)=\n(.*?)(?=^\(sec-todo|\Z)", PAGE, re.M | re.S))
AFTER = "sec-todo-after"
BLOCKS = [
    (name, b) for name, text in SECTIONS.items() if name != AFTER for b in BLOCK.findall(text)
]
FOLDER = TemporaryDirectory()  # a fit reads again what its block left there
NEEDS = "numpyro", "pymc", "jax"  # imported by some; `make adapters` has all


def test_the_table_names_every_section_in_order_and_each_has_a_block():
    table = PAGE.split("| I have |")[1].split("\n\n")[0]
    assert links(table) == [name for name in SECTIONS if name != AFTER]
    assert all(BLOCK.search(text) for text in SECTIONS.values())
    assert len(BLOCK.findall(SECTIONS[AFTER])) == SECTIONS[AFTER].count("\n**It has") == 3


def test_every_link_leads_somewhere():
    assert {*links(PAGE)} <= LABELS


@cache
def pasted(block):
    """The names that a block leaves, and what it prints, as `printed`; a fit takes a few steps."""
    for package in NEEDS:
        if re.search(rf"^(import|from) {package}\b", block, re.M):
            harness.jax() if package == "jax" else pytest.importorskip(package)
    fitted, space, few = cvlib.fit, {}, cvlib.Settings(looks=(25, 100, 400))
    block = block.replace("1_000_000", "2000")
    if "groups=" in block:
        block = block.replace("200", "50").replace("20,", "6,")

    def short(*args, seconds=None, **how):
        how |= {"restarts": 0} if len(args) == 1 else {}  # a q of another kind has none
        return fitted(*args, steps=5, settings=few, progress=False, **how)

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setattr(lots, "MOST", 512)  # points that a table is read from
        quick = partial(cvlib.choose, seconds=0.02, resamples=5)
        patch.setattr(cvlib, "fit", short, raising=False)
        patch.setattr(cvlib, "choose", quick, raising=False)
        patch.chdir(FOLDER.name)
        with warnings.catch_warnings(action="ignore"):
            exec(block, space)
    return space | {"printed": out.getvalue()}


one = lambda name: pasted(dict(BLOCKS)[name])


@pytest.mark.parametrize("name, block", BLOCKS, ids=lambda x: x[:20])
def test_a_block_runs_as_it_stands(name, block):
    made = pasted(block)
    last = re.findall(r"^(\w+) = ", block, re.M)[-1]
    assert last in ("fit", "effects", "slope", "answer", "choice")
    if last == "fit":
        assert np.isfinite(made["fit"].elbo)
    assert made["printed"] if last == "slope" else repr(made[last]) in made["printed"]


def test_what_is_done_after_a_fit_runs_on_the_model_of_ones_own():
    made = dict(one("sec-todo-own"))
    made["cv"] = SimpleNamespace(fit=partial(cvlib.fit, steps=5, progress=False))
    for block in BLOCK.findall(SECTIONS[AFTER]):
        with warnings.catch_warnings(action="ignore"):
            exec(block.replace("seconds=60", "seconds=0.1"), made)
    assert {"answer", "bent", "longer"} <= made.keys()


@pytest.mark.parametrize(
    "name, truth",
    [
        ("sec-todo-own", {"a": 1, "b": 2, "sigma": 1}),
        ("sec-todo-mixture", {"share": [0.6, 0.4], "centre": [0, 5], "sd": 1}),
        ("sec-todo-series", {"b": 0.7, "sd": 1}),
        ("sec-todo-states", {"noise": 1, "drift": 0.5}),
        ("sec-todo-rows", {"a": 1, "b": 2, "sigma": 1}),
    ],
)
def test_a_model_finds_what_its_data_were_made_with(name, truth):
    found = one(name)["fit"].draws(128, seed=0)
    assert all(np.allclose(found[key].mean(0), true, atol=0.2) for key, true in truth.items())


def test_the_draws_are_of_the_posterior_and_are_made_more_exact():
    """A gamma law, for the counts sum to 10 and the prior is gamma(2): E rate^2 is known."""
    made = one("sec-todo-chain")
    answer, plain = made["answer"], (made["chains"] ** 2).std() / 2000**0.5
    assert abs(answer.estimate - 12 * 13 / 25) < 4 * answer.se < plain


def test_the_first_model_prints_what_stands_below_it():
    """The README's model and table, which test_parameters.py tries, and the ELBO above it."""
    shown = re.search(r"^```\n(own model.*?)^```$", SECTIONS["sec-todo-own"], re.M | re.S)[1]
    code = dict(BLOCKS)["sec-todo-own"].replace("print(fit)", "print(fit.summary())")
    readme = (notebooks.BOOK.parent / "README.md").read_text("utf-8")
    readme = readme.replace("  # one number a row", "")
    name, elbo, *table = shown.splitlines(keepends=True)
    assert code in readme and f"```\n{''.join(table)}```" in readme
    fit = one("sec-todo-own")["fit"]
    assert fit.model.name in name and abs(fit.elbo - float(elbo.split()[1])) < 0.1


def test_the_filter_has_the_normal_density():
    """Of the series as a whole: a level of variance 100, a walk on it, and noise."""
    from scipy.stats import multivariate_normal

    made = one("sec-todo-states")
    t = np.arange(80)
    K = 100 + 0.4**2 * np.minimum(t[:, None], t) + 1.2**2 * np.eye(80)
    point = SimpleNamespace(noise=np.array(1.2), drift=np.array(0.4))
    right = multivariate_normal(cov=K).logpdf(made["y"])
    assert np.isclose(made["log_lik"](point, (made["y"][None],)), right)


def test_the_gaussian_process_has_the_normal_density():
    from scipy.stats import multivariate_normal

    made = one("sec-todo-gp")
    p = {"length": 1.3, "size": 0.8, "sd": 0.4}
    gap = (made["x"][:, None] - made["x"]) / p["length"]
    K = p["size"] ** 2 * np.exp(-0.5 * gap**2) + p["sd"] ** 2 * np.eye(30)
    right = multivariate_normal(cov=K).logpdf(made["y"]) + 15 * np.log(2 * np.pi)
    point = type("P", (), {key: np.array(value) for key, value in p.items()})
    assert np.isclose(made["log_lik"](point, (made["x"], made["y"])), right, atol=1e-4)


def test_the_policy_s_slope_is_right_over_all_groups_of_answers():
    jax = harness.jax()
    loss = one("sec-todo-policy")["loss"]
    each, w = jax.numpy.array([[1.0, 0.0, 0.4], [0.3, -0.5, 0.1]])
    groups = np.indices((3, 3)).reshape(2, -1).T  # all pairs of answers
    of = lambda w, a: loss(jax.nn.log_softmax(w)[a][None], each[a][None])
    slopes = jax.jit(jax.vmap(jax.grad(of), (None, 0)))(w, groups)
    chance = np.asarray(jax.nn.softmax(w))[groups].prod(1)
    right = -jax.jit(jax.grad(lambda w: jax.nn.softmax(w) @ each))(w)
    assert np.allclose(chance @ slopes, right, atol=1e-6)


def test_the_deep_model_s_slope_is_that_of_its_elbo():
    """The mean over draws, beside the closed form of the divergence."""
    jax = harness.jax()
    jnp = jax.numpy
    made = one("sec-todo-deep")
    x, params, elbo = made["x"][:2], made["params"], made["elbo"]
    eps = jax.random.normal(jax.random.key(7), (1000, 2, 6))
    eps = jnp.concatenate([eps, -eps])

    def closed(params, e):
        mu, log_s = jnp.split(x @ params["encoder"], 2, -1)
        logits = (mu + jnp.exp(log_s) * e) @ params["decoder"]
        log_lik = jnp.sum(x * logits - jax.nn.softplus(logits), -1)
        kl = 0.5 * jnp.sum(mu**2 + jnp.exp(2 * log_s) - 1 - 2 * log_s, -1)
        return jnp.mean(log_lik - kl)

    ours = jax.jit(jax.vmap(lambda e: jax.grad(elbo)(params, x, e)))(eps)
    theirs = jax.jit(jax.vmap(lambda e: jax.grad(closed)(params, e)))(eps)
    for name in params:
        off = ours[name] - theirs[name]
        error = off.reshape(2, 1000, -1).mean(0).std(0) / 1000**0.5
        assert np.all(np.abs(off.mean(0).ravel()) < 5 * error + 1e-5), name
