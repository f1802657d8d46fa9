"""What a reader can take along: the whole project as one zip, and the package as a wheel.

The wheel also holds what chapters read and use beside the package, so that a chapter downloaded
alone runs with it.

    python tools/takeaway.py [folder]      writes both there (_build/html); `make book` does it too

The project is what lies in its folder and is not named in .gitignore: with git or without, and also
in the unpacked zip, which makes the same zip again. Equal files give equal bytes: entries are
sorted, and their times and permissions are fixed.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "cvbook"  # of the zip, and of the folder inside it
PACKAGE = "cvlib", "pyproject.toml", "README.md", "LICENSE", "LICENSE-text"  # what the wheel needs
BOOK = {  # what chapters use beside the package, and where it lies in the wheel
    "experiments/*.py": "cvbook/experiments",
    "experiments/posteriordb/*": "cvbook/experiments/posteriordb",
    "results/*.json": "cvbook/results",
    "results/benchmarks/*.json": "cvbook/results/benchmarks",
    "benchmarks/race_read.py": "cvbook/benchmarks",
    "tools/plotting.py": "cvbook",
    "tools/sliders.py": "cvbook",
    "tools/sliders.html": "cvbook",
    "tools/periodic.py": "cvbook",
    "tools/periodic.html": "cvbook",
}
ALONE = """# Needed where this chapter lies alone, with the wheel: pip install 'THE-WHEEL[book]'
import cvbook

cvbook.here()"""
BUILD = "from setuptools import build_meta; import sys; build_meta.build_{}(sys.argv[1])"


def ignored(root):
    """Whether a path relative to `root` is named in .gitignore: by its name, or from the root."""
    lines = (root / ".gitignore").read_text("utf-8").splitlines()
    patterns = [line.rstrip("/") for line in lines if line and not line.startswith("#")]

    def by(path):
        return path.name == ".git" or any(
            fnmatch(path.as_posix(), p[1:]) if p.startswith("/") else fnmatch(path.name, p)
            for p in patterns
        )

    return by


def files(root=ROOT):
    """The files of the project, sorted, relative to its folder."""
    left_out, found = ignored(root), []
    for folder, inside, names in os.walk(root):
        here = Path(folder).relative_to(root)
        inside[:] = [name for name in inside if not left_out(here / name)]
        found += [here / name for name in names if not left_out(here / name)]
    return sorted(found, key=Path.as_posix)


def zipped(entries):
    """A zip as bytes, of pairs of a name and bytes. A script, known by its #!, may be executed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # Unix, wherever this runs: permissions are kept
            info.external_attr = (0o100755 if data.startswith(b"#!") else 0o100644) << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


def project(root=ROOT):
    """The zip of the whole project."""
    return zipped((f"{NAME}/{path.as_posix()}", (root / path).read_bytes()) for path in files(root))


def wheel_name(root=ROOT):
    """The wheel's file name, from the version that the package states."""
    text = (root / "cvlib/__init__.py").read_text("utf-8")
    version = re.search(r'^__version__ = "(.+)"$', text, re.M)[1]
    return f"cvlib_vi-{version}-py3-none-any.whl"


def package_folder(copy, root=ROOT):
    """What a wheel or an sdist is built of: the package, and what chapters use beside it."""
    for path in files(root):
        if path.parts[0] in PACKAGE:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, copy / path)
    for pattern, folder in BOOK.items():
        (copy / folder).mkdir(parents=True, exist_ok=True)
        for path in root.glob(pattern):
            shutil.copyfile(path, copy / folder / path.name)
    shutil.copyfile(root / "tools/cvbook.py", copy / "cvbook/__init__.py")


def built(kind, root=ROOT):
    """The wheel or the sdist, as its name and bytes, by the pinned setuptools in a copy."""
    with tempfile.TemporaryDirectory() as temporary:
        copy, out = Path(temporary, "copy"), Path(temporary, "out")
        out.mkdir()
        package_folder(copy, root)
        command = [sys.executable, "-c", BUILD.format(kind), str(out)]
        run = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        if not (made := list(out.iterdir())):
            raise RuntimeError(f"no {kind} was built:\n{run.stdout}{run.stderr}")
        return made[0].name, made[0].read_bytes()


def wheel(root=ROOT):
    """The wheel of the package, the same bytes for the same files."""
    with zipfile.ZipFile(io.BytesIO(built("wheel", root)[1])) as archive:
        return zipped((name, archive.read(name)) for name in archive.namelist())


def alone(notebook, root=ROOT):
    """The text of a notebook with a first cell that lets it run outside the project."""
    nb = json.loads(notebook)
    source = ALONE.replace("THE-WHEEL", wheel_name(root))
    cell = dict(cell_type="code", id="alone", metadata={}, execution_count=None, outputs=[])
    nb["cells"].insert(0, cell | {"source": source.splitlines(keepends=True)})
    return json.dumps(nb, ensure_ascii=False, indent=1) + "\n"


def write(folder, root=ROOT):
    """Write both into a folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {f"{NAME}.zip": project(root), wheel_name(root): wheel(root)}
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in made]


if __name__ == "__main__":
    for path in write(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "_build/html")):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
