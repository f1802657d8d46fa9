"""Which small bugs does no test see? Plants some at random in a copy, and lists those that survive.

    python tools/mutate.py --number 40 --seed 0            the shell of the package, as in FILES
    python tools/mutate.py cvlib/fitting cvlib/arguments.py    these files or folders
    python tools/mutate.py cvlib/fitting/run.py#12             this bug again, after a test for it

It is no part of the tests: a survivor may be harmless (a tolerance, a word, a speed), and a reader
has to say so. Packages for this exist (mutmut, cosmic-ray), but leave out no arguments and no
statements, which are the bugs that a shell has.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHELL = "tests/test_shell.py tests/test_arguments.py"
FILES = {  # where bugs are planted, and the tests that should see them, quick ones first
    "cvlib/fitting": f"{SHELL} tests/test_fit.py",
    "cvlib/families/found.py": f"{SHELL} tests/test_answers.py tests/test_fit.py",
    "cvlib/models": f"{SHELL} tests/test_parameters.py tests/test_models.py tests/test_guards.py "
    "tests/test_bad_input.py tests/test_quadrature.py",
    "cvlib/ascent/search.py": f"{SHELL} tests/test_fit.py",
    "cvlib/ascent/mode.py": f"{SHELL} tests/test_fit.py",
    "cvlib/ascent/even.py": f"{SHELL} tests/test_fit.py",
    "cvlib/ascent/exact.py": f"{SHELL} tests/test_exact.py tests/test_fit.py",
}
LEFT_OUT = "cvlib/models/compiled.py"  # its tests need JAX, NumPyro and PyMC
SECONDS = 600  # a bug that makes the tests take longer is seen
SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What small bugs make of a node."""
    same = lambda **other: type(node)(**{**dict(ast.iter_fields(node)), **other})
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield same(ops=[SWAPPED[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            yield same(op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inside):
            yield inside
        case ast.Constant(value=bool(x)):
            yield same(value=not x)
        case ast.Constant(value=int(x)):
            yield same(value=x + 1)
        case ast.Constant(value=float(x)):
            yield same(value=3 * x)
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
            yield same(test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(args=args, keywords=keywords):
            if len(args) > 1:  # the last may have a default
                yield same(args=args[:-1])
            yield from (same(keywords=[x for x in keywords if x is not k]) for k in keywords)
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Yield()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def planted(source: str) -> list[tuple[str, str]]:
    """Every bug as (what it is, the source with it)."""
    tree, found = ast.parse(source), []
    for parent in ast.walk(tree):
        for field, inside in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for k, node in enumerate(inside if isinstance(inside, list) else [inside]):
                for other in changes(node) if isinstance(node, ast.AST) else ():
                    many = isinstance(inside, list)
                    setattr(
                        parent, field, [*inside[:k], other, *inside[k + 1 :]] if many else other
                    )
                    says = f"line {node.lineno}: {_line(node)}   ->   {_line(other)}"
                    found.append((says, ast.unparse(ast.fix_missing_locations(tree))))
                    setattr(parent, field, inside)
    return found


def _line(node):
    return " ".join(ast.unparse(node).split())[:90]


def seen(file: str, source: str, tests: list[str], copy: Path) -> str:
    """The test that fails in the copy with this source in place of the file's; "" if none does."""
    (copy / file).write_text(source)
    env = os.environ | {"PYTHONPATH": str(copy), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=env, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return "too slow"
    finally:
        shutil.copy(ROOT / file, copy / file)
    names = re.findall(r"^(?:FAILED|ERROR) \S*?(test_\S+)", done.stdout, re.MULTILINE)
    return (names or ["no test began"])[0] if done.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("where", nargs="*", default=list(FILES), help="files, folders, file#number")
    parser.add_argument("--number", type=int, default=40, help="of bugs, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", help="in place of those that belong to the files")
    given = parser.parse_args()
    bugs = []
    for place in given.where:
        path, _, number = place.partition("#")
        files = sorted((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]
        for file in (str(f.relative_to(ROOT)) for f in files):
            each = [(file, k, *bug) for k, bug in enumerate(planted((ROOT / file).read_text()))]
            bugs += [each[int(number)]] if number else each if file not in LEFT_OUT else []
    chosen = random.Random(given.seed).sample(bugs, min(given.number, len(bugs)))
    print(f"{len(chosen)} of {len(bugs)} bugs", flush=True)
    caught, left = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        unneeded = shutil.ignore_patterns(".git", ".venv", "_build", ".*_cache", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=unneeded)
        for file, k, says, source in sorted(chosen):
            belongs = next((t for where, t in FILES.items() if file.startswith(where)), "tests")
            tests = given.tests or [t for t in belongs.split() if (ROOT / t).exists()]
            began = time.perf_counter()
            test = seen(file, source, tests, copy)
            (caught if test else left)[file] += 1
            print(f"{'caught  ' if test else 'SURVIVED'} {time.perf_counter() - began:4.0f} s  "
                  f"{file}#{k} {says}   {test and 'by ' + test}", flush=True)  # fmt: skip
    for file in sorted({*caught, *left}):
        print(f"{file}: {caught[file]} caught, {left[file]} survived")


if __name__ == "__main__":
    main()
