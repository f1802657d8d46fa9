"""Which small bugs does no test see? Plants some at random in a copy, and lists those that survive.

    python tools/mutate.py --number 40 --seed 0                of the shell of the package, FILES
    python tools/mutate.py cvlib/fitting cvlib/arguments.py    of these files or folders
    python tools/mutate.py cvlib/fitting/run.py#12             this bug again, after a test for it

It is no part of the tests: a survivor may be harmless (a tolerance, a word, a speed), and a reader
has to say so. It also leaves out arguments and statements, the bugs that a shell has.
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
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHELL = ["shell", "arguments"]
FILES = {  # where bugs are planted, and the tests that should see them, quick ones first
    "cvlib/fitting": [*SHELL, "kinds", "edges", "fit", "budgets", "fitting"],
    "cvlib/fitting/found.py": [*SHELL, "kinds", "answers", "fit"],
    "cvlib/models": [*SHELL, "parameters", "own_models", "bad_input", "lines", "passes"],
    "cvlib/ascent/exact.py": [*SHELL, "own_models", "fit"],
}
LEFT_OUT = "cvlib/adapters"  # whose tests need JAX, NumPyro and PyMC
SECONDS = 600  # a bug that makes the tests take longer is seen
PAIRS = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, Add Sub, Pow Mult, Mult Div, And Or"
SWAPPED = {a: b for pair in PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What small bugs make of a node."""
    same = lambda **other: type(node)(**{**dict(ast.iter_fields(node)), **other})
    swapped = lambda op: getattr(ast, SWAPPED[type(op).__name__])()
    match node:
        case ast.Compare(ops=[op]) if type(op).__name__ in SWAPPED:
            yield same(ops=[swapped(op)])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op).__name__ in SWAPPED:
            yield same(op=swapped(op))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inside):
            yield inside
        case ast.Constant(value=bool(x) | int(x) | float(x)):
            yield same(value=not x if x is True or x is False else 3 * x + (x == int(x)))
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
            yield same(test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(args=args, keywords=keywords):
            if len(args) > 1:  # the last may have a default
                yield same(args=args[:-1])
            yield from (same(keywords=[x for x in keywords if x is not k]) for k in keywords)
        case (ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Yield())
              | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])):  # fmt: skip
            yield ast.Pass()


def planted(tree: ast.AST) -> Iterator[str]:
    """What each bug is, while the tree has it."""
    line = lambda node: " ".join(ast.unparse(node).split())[:90]
    for parent in ast.walk(tree):
        for field, inside in list(ast.iter_fields(parent)):
            nodes = inside if isinstance(inside, list) else [inside]
            code = field not in ("annotation", "returns", "decorator_list")
            for k, node in enumerate(nodes):
                for other in changes(node) if code and isinstance(node, ast.AST) else ():
                    many = [*nodes[:k], ast.copy_location(other, node), *nodes[k + 1 :]]
                    setattr(parent, field, many if inside is nodes else other)
                    yield f"line {node.lineno}: {line(node)}   ->   {line(other)}"
                    setattr(parent, field, inside)


def caught_by(file: str, number: int, tests: list[str], copy: Path) -> str:
    """The test that fails in the copy with this bug; "" if none does."""
    tree = ast.parse((ROOT / file).read_text())
    next(islice(planted(tree), number, None))
    (copy / file).write_text(ast.unparse(ast.fix_missing_locations(tree)))
    env = os.environ | {"PYTHONPATH": str(copy), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *"-m pytest -q -x -p no:cacheprovider".split()]
    command += [f"tests/test_{name}.py" for name in tests]
    try:
        ended = subprocess.run(command, cwd=copy, env=env, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "their length"
    finally:
        shutil.copy(ROOT / file, copy / file)
    failed = re.findall(rb"(?m)^(?:FAILED|ERROR) \S*?(test_\S+)", ended.stdout)
    return (failed or [b"none that began"])[0].decode() if ended.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("where", nargs="*", default=list(FILES), help="files, folders, file#number")
    parser.add_argument("--number", type=int, default=40, help="of bugs, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", help="by name, in place of those in FILES")
    given, bugs, count = parser.parse_args(), [], Counter[str]()
    for place in given.where:
        path, _, number = place.partition("#")
        inside = sorted((ROOT / path).rglob("*.py")) or [ROOT / path]
        for file in (str(f.relative_to(ROOT)) for f in inside):
            each = [(file, *bug) for bug in enumerate(planted(ast.parse(open(ROOT / file).read())))]
            bugs += [each[int(number)]] if number else each if not file.startswith(LEFT_OUT) else []
    with tempfile.TemporaryDirectory() as folder:
        unneeded = shutil.ignore_patterns(".git", ".venv", "_build", ".*_cache", "__pycache__")
        copy = shutil.copytree(ROOT, Path(folder) / "copy", ignore=unneeded)
        for file, k, says in random.Random(given.seed).sample(bugs, min(given.number, len(bugs))):
            belong = next((t for where, t in FILES.items() if file.startswith(where)), SHELL)
            test = caught_by(file, k, given.tests or belong, copy)
            count[f"{file}: {'caught' if test else 'survived'}"] += 1
            word = f"caught by {test}" if test else "SURVIVED"
            print(f"{file}#{k} {says}   {word}", flush=True)
    print(*(f"{n:4} {what}" for what, n in sorted(count.items())), sep="\n")


if __name__ == "__main__":
    main()
