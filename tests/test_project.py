"""One version everywhere, the linter's checks before each commit, and what readers take along."""

import io
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import release  # tools/release.py
import takeaway  # tools/takeaway.py
import yaml

import cvlib

ROOT = takeaway.ROOT
read = lambda name: (ROOT / name).read_text("utf-8")


def released():
    """The versions that the changelog knows, newest first."""
    return re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", read("CHANGELOG.md"), re.M)


def test_one_version_and_a_changelog_that_begins_with_what_is_not_released():
    """It is written in the package; setuptools reads it there without importing anything."""
    literal = re.findall(r'^__version__ = "([^"]+)"$', read("cvlib/__init__.py"), re.M)
    assert literal == [cvlib.__version__]
    pyproject = tomllib.loads(read("pyproject.toml"))
    assert "version" not in pyproject["project"] and pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cvlib.__version__"}
    assert str(yaml.safe_load(read("CITATION.cff"))["version"]) == cvlib.__version__
    assert released()[0] == cvlib.__version__
    headings = re.findall(r"^## (.+)$", read("CHANGELOG.md"), re.M)
    assert headings[0] == "Unreleased" and len(headings) == 1 + len(released())
    assert released() == sorted(released(), key=lambda v: [*map(int, v.split("."))], reverse=True)


@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_a_commit_is_linted_as_the_tests_are():
    ((hook,),) = (x["hooks"] for x in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"])
    assert hook["entry"] == "make lint" and not hook["pass_filenames"]
    line, *_ = lint = plan("lint", "ruff")
    assert plan("test", "ruff") == lint
    assert "ruff check" in line and "ruff format --check" in line


def plan(target, word):
    """The lines with this word among those that `make` would run."""
    done = subprocess.check_output(["make", "-n", target], cwd=ROOT, text=True)
    return [line for line in done.splitlines() if word in line]


@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_what_a_browser_looks_at_is_tested_apart():
    """With and without a browser at hand `make test` runs the same."""
    asks = r"def \w+\([^)]*\bbrowser"  # for a fixture
    files = (ROOT / "tests").glob("test_*.py")
    apart = {p.name for p in files if re.search(asks, p.read_text("utf-8"))}
    assert {"test_site.py", "test_lab.py", "test_pdf.py"} <= apart
    for target in "test", "units":
        (line,) = plan(target, "bin/pytest")
        assert apart <= set(re.findall(r"--ignore tests/(\S+)", line))
    (line,) = plan("site-test", "bin/pytest")
    assert apart <= set(re.findall(r" tests/(\S+)", line))


# A zip of the project that makes itself again, a wheel of the package ---------------------------


@pytest.fixture(scope="module")
def project():
    return takeaway.project()


@pytest.fixture(scope="module")
def unpacked(project, tmp_path_factory):
    """The project as Python unpacks it: other times, other permissions, no git."""
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(io.BytesIO(project)).extractall(folder)
    return folder / takeaway.NAME


def test_the_unpacked_project_makes_the_same_zip(project, unpacked):
    assert not (unpacked / ".git").exists()
    (unpacked / ".ci/run").chmod(0o600)
    (unpacked / "Makefile").chmod(0o777)
    for folder in "_build/html", ".venv/bin", "cvlib/__pycache__", "cvlib_vi.egg-info", ".git":
        (unpacked / folder).mkdir(parents=True)
        (unpacked / folder / "made").touch()
    (unpacked / "results/cells").mkdir()
    (unpacked / "results/cells/one.json").touch()
    (unpacked / "book/intro.failed").touch()
    assert takeaway.project(unpacked) == project
    (unpacked / "book/20-new.md").touch()  # but what a reader adds is taken
    assert Path("book/20-new.md") in takeaway.files(unpacked)
    (unpacked / "book/20-new.md").unlink()


def test_the_project_is_what_git_knows_or_would_take():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    named = subprocess.check_output(command, cwd=ROOT, text=True)
    present = {Path(p) for p in named.split("\0") if p and (ROOT / p).exists()}
    assert set(takeaway.files()) == present


def test_times_order_and_permissions_are_fixed(project):
    entries = zipfile.ZipFile(io.BytesIO(project)).infolist()
    names = [entry.filename.removeprefix(takeaway.NAME + "/") for entry in entries]
    assert names == sorted(names) and "cvlib/__init__.py" in names and len(project) < 12_000_000
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    modes = {name: oct(entry.external_attr >> 16) for name, entry in zip(names, entries)}
    assert modes[".ci/run"] == "0o100755" and modes["Makefile"] == "0o100644"


def test_the_wheel_holds_the_package_and_what_chapters_read_and_is_the_same_again(unpacked):
    built = takeaway.wheel()
    assert takeaway.wheel(unpacked) == built
    names = zipfile.ZipFile(io.BytesIO(built)).namelist()
    own = {str(p) for p in takeaway.files() if p.parts[0] == "cvlib"}
    assert own == {name for name in names if name.startswith("cvlib/")}
    book = {f"{to}/{p.name}" for pattern, to in takeaway.BOOK.items() for p in ROOT.glob(pattern)}
    assert book | {"cvbook/__init__.py"} == {n for n in names if n.startswith("cvbook/")}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"cvlib", "cvbook", "cvlib_vi"}
    assert f"cvlib_vi-{cvlib.__version__}.dist-info/METADATA" in names
    assert takeaway.wheel_name() == f"cvlib_vi-{cvlib.__version__}-py3-none-any.whl"


def test_what_chapters_import_from_the_project_is_in_the_wheel():
    held = {p.relative_to(ROOT) for pattern in takeaway.BOOK for p in ROOT.glob(pattern)}
    ours = [p.relative_to(ROOT) for p in (*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tools/*.py"))]
    module = {".".join(p.with_suffix("").parts).removeprefix("tools."): p for p in ours}
    found = set()
    for text in map(read, ROOT.glob("book/*.md")):
        for start, names in re.findall(r"^from ([\w.]+) import (.+)$", text, re.M):
            found |= {start, *(f"{start}.{name.strip()}" for name in names.split(","))}
        found |= set(re.findall(r"^import ([\w.]+)", text, re.M))
    used = {module[name] for name in found & set(module)}
    assert {Path("benchmarks/race_read.py"), Path("tools/sliders.py")} <= used <= held


def test_a_chapter_alone_is_the_chapter_and_a_first_cell():
    text = read("book/one-control-variate.ipynb")
    first, *rest = json.loads(takeaway.alone(text))["cells"]
    assert "cvbook.here()" in first["source"] and takeaway.wheel_name() in "".join(first["source"])
    assert rest == json.loads(text)["cells"]


# A release, and what a forge reads --------------------------------------------------------------


LOG = "# Changelog\n\n## Unreleased\n{}\n## 1.2.3 - 2027-01-31\n\n### Added\n- x\n"


def test_a_version_is_released_if_changelog_citation_and_tag_agree():
    cited = "version: 1.2.3\n"
    assert release.problems("1.2.3", LOG.format(""), cited, ["v1.2.3"]) == []
    assert release.problems("1.2.3", LOG.format(""), cited, []) == []
    for said, (version, log, tags) in {
        "newest entry": ("1.2.4", LOG.format(""), []),
        "lines under Unreleased": ("1.2.3", LOG.format("\n- more\n"), []),
        "CITATION.cff cites 1.2.3": ("1.2.4", LOG.format(""), []),
        "not v1.2.3": ("1.2.3", LOG.format(""), ["v1.2"]),
    }.items():
        assert any(said in problem for problem in release.problems(version, log, cited, tags))


def test_wheel_sdist_and_zip_hold_the_package_and_the_wheel_works(monkeypatch):
    made, wrong = release.build()
    assert wrong == [] and [name.rsplit(".", 1)[1] for name in made] == ["whl", "gz", "zip"]
    wheel = takeaway.wheel
    monkeypatch.setattr(takeaway, "built", lambda kind, root: ("x.tar.gz", made[[*made][1]]))
    lacks = {"cvlib/__init__.py", "cvlib/py.typed"}  # a wheel without the first file
    entries = zipfile.ZipFile(io.BytesIO(made[takeaway.wheel_name()]))
    less = [(n, entries.read(n)) for n in entries.namelist() if n not in lacks]
    monkeypatch.setattr(takeaway, "wheel", lambda root: takeaway.zipped(less))
    _, wrong = release.build()
    assert any("lacks or adds" in what for what in wrong) and wheel is not takeaway.wheel
    assert any("does not work" in what for what in wrong)


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_workflows_have_the_forge_s_form_and_call_make_and_ci_alone(tmp_path):
    """The schema sees what is broken, in each, and nothing in the files as they are."""
    broken = []
    for path in WORKFLOWS:
        text = path.read_text("utf-8")
        steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
        lines = [step["run"] for step in steps if "run" in step]
        assert lines and all(re.fullmatch(r"make [\w -]+|\.ci/run", line) for line in lines)
        broken.append(tmp_path / path.name)
        broken[-1].write_text(text.replace("runs-on", "run-on"))
    check = [sys.executable, *"-m check_jsonschema --builtin-schema".split()]
    check += ["vendor.github-workflows", *map(str, [*WORKFLOWS, *broken])]
    said = subprocess.run(check, capture_output=True, text=True).stdout
    wrong = {path for path in [*WORKFLOWS, *broken] if f"{path}::" in said}
    assert wrong == {*broken} and "run-on" in said, said


def test_both_kinds_of_processor_and_three_pythons_are_tested():
    job = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]["two-commands"]
    matrix = job["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    assert [name.endswith("-arm") for name in matrix["machine"]] == [False, True]
    assert "macos" in matrix["include"][0]["machine"] and "macos" in job["continue-on-error"]


# Names of 0.13 -----------------------------------------------------------------------------------

DEPARTED = [(core, name) for core, names in cvlib.GONE.items() for name in names]


@pytest.mark.parametrize("core, name", DEPARTED, ids=lambda x: x)
def test_a_name_that_has_gone_says_so_and_stands_on_its_page(core, name):
    module = getattr(cvlib, core[1:]) if core else cvlib
    with pytest.raises(AttributeError, match="has gone since 0.13: ") as said:
        getattr(module, name)
    sentence = str(said.value).split("0.13: ")[1]
    assert f"| `cv{core}.{name}` | {sentence} |" in read("book/from-0.13.md").replace(
        "`", ""
    ).replace(f"| cv{core}.{name} |", f"| `cv{core}.{name}` |")
    for place in re.findall(r"\bcvlib(?:\.\w+)+", sentence):  # exists
        where, last = place.rsplit(".", 1)
        assert hasattr(__import__(where, fromlist=["x"]), last), place
