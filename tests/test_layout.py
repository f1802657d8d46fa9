"""The shape of the package: who may know whom, how long things are, what an import brings."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
from functools import partial
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import cvlib

PACKAGE = Path(cvlib.__file__).parent
# Folders and files, from the base up
CORE = "combine models families recipe zoo ascent".split()
LAYERS = [*CORE, "adapters", "choosing", "fitting"]
FOLDERS = [layer for layer in LAYERS if (PACKAGE / layer).is_dir()]
BASE = {"arguments", "deadline", "special", "points", "draws", "datasets"}  # below them, for all
ALONE = {"definitions"}  # which know nobody, and nobody knows them
FILES = sorted(PACKAGE.rglob("*.py"))
name = lambda path: str(path.relative_to(PACKAGE))


def imported(path):
    """The files that a file imports, for the sake of types too, as the parts of their paths."""
    tree, inside = ast.parse(path.read_text("utf-8")), path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = inside[: len(inside) - (node.level - 1)]
            parts = [*base, *filter(None, (node.module or "").split("."))]
            if parts and PACKAGE.joinpath(*parts).with_suffix(".py").exists():
                yield tuple(parts)
            else:  # names of a folder: its files, or what its __init__ hands on
                yield from ((*parts, alias.name) for alias in node.names)


@pytest.mark.parametrize("layer", [*LAYERS, *sorted(BASE | ALONE)])
def test_imports_run_one_way(layer):
    below = LAYERS[: LAYERS.index(layer) + 1] if layer in LAYERS else ()
    allowed = set() if layer in ALONE else BASE.union(below)
    for path in [p for p in FILES if p.relative_to(PACKAGE).with_suffix("").parts[0] == layer]:
        assert {parts[0] for parts in imported(path)} <= allowed, name(path)


def test_no_files_import_each_other_in_a_circle():
    files = {path.relative_to(PACKAGE).with_suffix("").parts: path for path in FILES}
    needs = {parts: {*imported(path)} & files.keys() for parts, path in files.items()}
    TopologicalSorter(needs).prepare()  # which names a circle


def test_the_folders_are_all_there_is():
    assert {p.parent.name for p in FILES} == {*FOLDERS, "cvlib"}
    files = {*BASE, *ALONE, *LAYERS, "__init__"} - {*FOLDERS}
    assert {p.stem for p in PACKAGE.glob("*.py")} == files


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_is_short_says_what_it_is_and_has_types(path):
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 450
    assert ast.get_docstring(tree), "a module begins with what lives in it"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 50, f"{node.name} is longer than a screen"
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for f in (f for f in functions if not f.name.startswith("_")):
        given = *f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs
        untyped = [a.arg for a in given if a.annotation is None]
        assert f.returns is not None and not untyped, f"{f.name}: {untyped or 'what it returns'}"


def methods(kind):
    """(name, function) of the public methods and properties that a class defines itself."""
    for name, value in vars(kind).items():
        parts = (getattr(value, part, None) for part in ("__func__", "fget", "func"))
        f = next(filter(None, parts), value)  # of a class method, a property, a cached property
        if not name.startswith("_") and getattr(f, "__name__", "") == name:  # no other's alias
            yield name, f


@pytest.mark.parametrize("layer", CORE)
def test_methods_say_what_they_return_or_stand_for_one_that_does(layer):
    paths = [p for p in (PACKAGE / layer).glob("*.py") if p.stem != "__init__"]
    names = [f"{layer}.{path.stem}" for path in paths] or [layer]
    for module in (import_module(f"cvlib.{name}") for name in names):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ != module.__name__ or name.startswith("_"):
                continue
            returns = lambda f: "return" in getattr(f, "__annotations__", {})
            typed = {n for base in kind.__mro__ for n, f in methods(base) if returns(f)}
            untyped = [n for n, _ in methods(kind) if n not in typed]
            assert not untyped, f"{module.__name__}.{name}: {untyped}"


ALONE_AT_WORK = """
import sys, cvlib as cv, numpy as np
model = cv.models.logistic_regression(*cv.datasets.load("sonar"))
q, rng = cv.families.Gaussian(model.dim), np.random.default_rng(0)
zoo = cv.zoo.paper(model, q)
draw = cv.draw(model, q, q.start(), M=10, rng=rng)
assert zoo.h(draw).shape == zoo.c7(draw).shape == (10, q.D)
path = cv.optimize.sgd(model, q, zoo.h, zoo.S7, M=10, lr=0.2, steps=20, rng=rng)
data, prior, variational = cv.terms(model, q)
whole = cv.PR(data + prior - variational)
natural = cv.optimize.sgd(
    model, q, whole, M=10, lr=0.2, steps=20, rng=rng, rule=cv.rules.natural(), subsample=False)
for w in q.start(), path.w, natural.w:
    print(cv.exact.elbo(model, q, w))
"""


def test_the_core_works_where_nothing_stands_on_it(tmp_path):
    """The README's gradient, SGD with S7, and natural steps, without the folders above."""
    above = [layer for layer in LAYERS if layer not in CORE]
    left_out = shutil.ignore_patterns("__pycache__", *above, *(f"{layer}.py" for layer in above))
    shutil.copytree(PACKAGE, tmp_path / "cvlib", ignore=left_out)
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, check=True)
    elbos = run([sys.executable, "-c", ALONE_AT_WORK], env=os.environ | {"PYTHONPATH": "."}).stdout
    start, climbed, arrived = map(float, elbos.split())
    assert start < climbed < arrived < -109


def test_functions_shadow_no_module():
    for attribute in cvlib.__all__:
        if callable(getattr(cvlib, attribute)):
            assert not (PACKAGE / f"{attribute}.py").exists(), attribute
            assert not (PACKAGE / attribute).is_dir(), attribute


def entered(run):
    """The files of the package whose functions a call enters, in the order of entering."""
    found = {}

    def note(frame, event, argument):
        if event == "call":
            found[frame.f_code.co_filename] = None

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return [name(path) for path in map(Path, found) if path.is_relative_to(PACKAGE)]


def sonar():
    """The README's model, and its gradient with a control variate."""
    model = cvlib.models.logistic_regression(*cvlib.datasets.load("sonar"))
    q = cvlib.families.Gaussian(model.dim)
    data, prior, variational = cvlib.terms(model, q)
    T, RP1, CF = cvlib.taylor_z(data), cvlib.RP1, cvlib.CF
    return model, q, RP1(data) + RP1(prior) - CF(variational), CF(T) - RP1(T)


def test_a_gradient_a_step_and_a_fit_enter_few_files():
    model, q, h, c = sonar()
    rng = np.random.default_rng(0)

    def gradient():
        draw = cvlib.draw(model, q, q.start(), M=10, rng=rng)
        return h(draw), c(draw)

    gradient()  # what is imported when it is first asked for is not entered again
    files = entered(gradient)
    assert len(files) <= 10, files
    page = (PACKAGE.parent / "book" / "internals.md").read_text("utf-8")
    told = page[page.index("## The path of one gradient") : page.index("## `cvlib.combine`")]
    assert [file for file in files if f"`{file}`" not in told] == []
    rules = {"rule": cvlib.rules.momentum(), "weights": cvlib.rules.bayes()}
    plan = cvlib.optimize.Noisy(model, q, h, [c], lr=0.01, M=10, **rules)
    state = plan.first(rng)
    new = cvlib.models.logistic_regression(*cvlib.datasets.toy())  # that was not yet asked
    fit = partial(cvlib.fit, new, bend=False, progress=False)
    step, fitted = entered(partial(plan.step, state)), entered(fit)
    assert len(step) <= 14 and len(fitted) <= 22, (step, fitted)  # three for the summary


ABOVE = " ".join(f"cvlib.{layer}" for layer in LAYERS if layer not in CORE)
LATER = {
    "cvlib": "scipy.special scipy.linalg importlib.resources html gzip autograd.scipy "
    f"matplotlib joblib threadpoolctl tqdm experiments {ABOVE}",
    "experiments": f"scipy.s matplotlib {ABOVE}",
}


@pytest.mark.parametrize("package", LATER)
def test_what_is_needed_later_or_never_is_not_imported_at_once(package):
    """Every chapter imports the experiments: a part of scipy costs as much as all the rest."""
    late = tuple(LATER[package].split())
    code = f"import {package}, sys; print(*(n for n in sys.modules if n.startswith({late})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
