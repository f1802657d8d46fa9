"""A release: wheel, sdist and zip of the project, built and checked.

    python tools/release.py [dist]

A version is released by a heading in CHANGELOG.md and a tag: `## 1.2.3 - 2027-01-31` over what was
*Unreleased*, the same number in cvlib/__init__.py and CITATION.cff, and `git tag v1.2.3`.
`problems` says in sentences what does not agree; the files are built, and tried on their own.
"""

import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import takeaway
import yaml

ROOT = takeaway.ROOT
TRY = "import cvlib; print(cvlib.__version__); cvlib.datasets.load('sonar')"


def problems(version, changelog, citation, tags):
    """What keeps this version from being released, given both texts and the tags of the commit."""
    entries = re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", changelog, re.M)
    found = []
    if entries[:1] != [version]:
        found.append(f"CHANGELOG.md's newest entry is {entries[:1]}, cvlib's version {version}")
    if changelog.split("## Unreleased")[1].split("\n## ")[0].strip():
        found.append("CHANGELOG.md has lines under Unreleased: they belong to a version")
    if (cited := str(yaml.safe_load(citation)["version"])) != version:
        found.append(f"CITATION.cff cites {cited}, cvlib's version is {version}")
    if tags and f"v{version}" not in tags:
        found.append(f"the commit has the tag {tags[0]}, not v{version}")
    return found


def members(name, data):
    """The package's files in a wheel, an sdist or the zip of the project."""
    if name.endswith(".tar.gz"):
        names = tarfile.open(fileobj=io.BytesIO(data)).getnames()
    else:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    inside = [re.sub(r"^(cvlib_vi-[^/]+|cvbook)/(?=cvlib/)", "", name) for name in names]
    return {name for name in inside if re.match(r"cvlib/.*\.\w+$", name)}


def tried(wheel, version):
    """Imported from the wheel alone, in an empty folder, the package is this version."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            archive.extractall(folder)
        env = os.environ | {"PYTHONPATH": folder}
        run = subprocess.run(
            [sys.executable, "-c", TRY], cwd=folder, env=env, capture_output=True, text=True
        )
    return [] if run.stdout.strip() == version else [f"the wheel does not work: {run.stderr}"]


def build(root=ROOT):
    """({file name: bytes}, what is wrong with them)."""
    sdist, data = takeaway.built("sdist", root)
    name, wheel = takeaway.wheel_name(root), takeaway.wheel(root)
    made = {name: wheel, sdist: data, f"{takeaway.NAME}.zip": takeaway.project(root)}
    ours = {path.as_posix() for path in takeaway.files(root) if path.parts[0] == "cvlib"}
    found = [
        f"{name} lacks or adds {sorted(ours ^ members(name, data))}"
        for name, data in made.items()
        if members(name, data) != ours
    ]
    return made, found + tried(wheel, re.search(r"cvlib_vi-([^-]+)-", name)[1])


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist")
    read = lambda name: (ROOT / name).read_text("utf-8")
    version = re.search(r"cvlib_vi-([^-]+)-", takeaway.wheel_name())[1]
    git = ["git", "tag", "--points-at", "HEAD"]
    tags = subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.split()
    made, wrong = build()
    wrong += problems(version, read("CHANGELOG.md"), read("CITATION.cff"), tags)
    if wrong:
        sys.exit("\n".join([f"{version} is not released:", *(f"- {what}" for what in wrong)]))
    out.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (out / name).write_bytes(data)
        print(f"{out / name}: {len(data) / 1e6:.1f} MB")
    print(f"tag it with: git tag v{version}")


if __name__ == "__main__":
    main()
