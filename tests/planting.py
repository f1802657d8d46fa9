"""Where a bug lies, and the module with the bug; harness.py says what a bug is.

A place is found by its name and the code by its syntax tree, so that a bug stays where it is when
code moves to another file or is laid out anew.
"""

import ast
import re
import textwrap
from functools import cache
from itertools import product


@cache
def modules(roots):
    """{dotted name: file} of the code in some folders."""
    files = [(file.relative_to(root.parent), file) for root in roots for file in root.rglob("*.py")]
    dotted = lambda path: ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return {dotted(path): file for path, file in files}


def definitions(node, prefix=""):
    """(name, node) of the functions, classes and assignments in a tree, also inside each other."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield prefix + child.name, child
            yield from definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, (ast.Assign, ast.AnnAssign)):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            names = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            yield from ((prefix + n.id, child) for n in names if isinstance(n.ctx, ast.Store))
        elif isinstance(child, ast.stmt):
            yield from definitions(child, prefix)


def places(module, tree):
    """(name, node) of a module's places: it all, and its definitions with and without its name."""
    short = module.split(".")[-1]
    yield f"{short}.*", tree
    for name, node in definitions(tree):
        yield name, node
        yield f"{short}.{name}", node


@cache
def index(roots):
    """{name of a place: {module that has one: file}}"""
    found = {}
    for module, file in modules(roots).items():
        for name, _ in places(module, ast.parse(file.read_bytes())):
            found.setdefault(name, {})[module] = file
    return found


def readings(old, new):
    """(old, new) as lists of syntax trees: expressions, statements, or arguments "name=value"."""
    try:
        yield [[ast.parse(text.strip(), mode="eval").body] for text in (old, new)]
    except SyntaxError:
        both = [ast.parse(textwrap.dedent(text)).body for text in (old, new)]
        yield both
        if len(both[0]) == 1 and all(isinstance(tree, ast.Assign) for tree in sum(both, [])):
            yield [[ast.keyword(ast.unparse(t.targets), t.value) for t in one] for one in both]


def same(some, others):
    """Equal code, wherever it stands, and whether its names are read or written."""
    text = lambda nodes: re.sub(r"(, )?ctx=\w+\(\)", "", "".join(map(ast.dump, nodes)))
    return [*map(type, some)] == [*map(type, others)] and text(some) == text(others)


def defaults(node):
    """(field, where, argument "name=value") of the defaults of a function."""
    args = node.posonlyargs + node.args
    args = args[len(args) - len(node.defaults) :]
    for field, names in ("defaults", args), ("kw_defaults", node.kwonlyargs):
        for k, (arg, value) in enumerate(zip(names, getattr(node, field))):
            yield field, slice(k, k + 1), ast.keyword(arg.arg, value)


def matches(tree, old, new):
    """(node, field, where, trees to put there) of each match; where is None for a single tree."""
    for (olds, news), node in product(readings(old, new), ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts = [slice(i, i + len(olds)) for i in range(len(value) - len(olds) + 1)]
                yield from ((node, field, k, news) for k in parts if same(value[k], olds))
            elif same([value], olds):
                yield node, field, None, news
        for field, k, argument in defaults(node) if isinstance(node, ast.arguments) else ():
            if same([argument], olds):
                yield node, field, k, [news[0].value]


def planted(roots, place, old, new):
    """The module where a bug lies, and its syntax tree with the bug."""
    found = []
    for module, file in index(roots).get(place, {}).items():
        tree = ast.parse(file.read_bytes())
        for node in (node for name, node in places(module, tree) if name == place):
            found += [(module, tree, *match) for match in matches(node, old, new)]
    assert len(found) == 1, f"no longer applies: {old!r} stands {len(found)} times in {place!r}"
    ((module, tree, node, field, where, news),) = found
    if where is None:
        setattr(node, field, news[0])
    else:
        getattr(node, field)[where] = news
        if not getattr(node, field) and field == "body":
            node.body = [ast.Pass()]
    return module, ast.fix_missing_locations(tree)
