"""Execute the text notebooks of book/ and store them, with outputs, as their .ipynb twins.

    python tools/notebooks.py             chapters whose text changed since they were executed
    python tools/notebooks.py 02-one-control-variate ...    these chapters, changed or not
    python tools/notebooks.py --all       every chapter (after a change in cvlib or in the pins)

The text is the source: edits made in an .ipynb alone are lost. A second run writes the same bytes.
"Changed" looks at the chapter's text only; outputs that a change in cvlib made stale are found by
`make test`, which names the chapter.
"""

import argparse
import base64
import hashlib
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import jupytext
import nbformat
from jupytext.config import load_jupytext_config
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
STORY = Path("_static/story.png")  # inside book/: the README's picture
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def chapters(book=BOOK):
    """The text notebooks of a folder; a page without a kernel in its front matter is plain text."""
    front_matter = lambda md: md.read_text("utf-8").split("\n---", 1)[0]
    return [md for md in sorted(book.glob("*.md")) if "\nkernelspec:" in front_matter(md)]


def read_text(md):
    """The chapter's text as a notebook without outputs; a cell's id is a digest of its source."""
    nb = jupytext.read(md)
    seen = {}
    for cell in nb.cells:
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        cell["metadata"] = nbformat.from_dict(dict(cell.metadata))
    nb.nbformat, nb.nbformat_minor = 4, 5
    return nb


def saved(md):
    """The chapter's text as Jupyter Lab saves it, each caption and alt text as one paragraph."""
    config = load_jupytext_config(str(md))
    nb = jupytext.read(md, config=config)
    nb.metadata["kernelspec"] = KERNEL
    for cell in nb.cells:
        shown = cell.metadata.get("mystnb", {})
        for part, words in ("figure", "caption"), ("image", "alt"):
            if words in shown.get(part, {}):
                shown[part][words] = " ".join(shown[part][words].split())
    return jupytext.writes(nb, "md:myst", config=config)


def tidy(md):
    """Write the text as Lab would, so that a save there shows only what was edited."""
    text = saved(md)
    if text != md.read_text("utf-8"):
        md.write_text(text, "utf-8")
        print(f"{md.name}: rewrapped as Jupyter Lab saves it")


def inputs(nb):
    """What a pair must share: the notebook's metadata and each cell's type, source and metadata."""
    return nb.metadata, [(c.cell_type, c.source, c.metadata) for c in nb.cells]


def never_executed(nb):
    """The code cells with source but no execution count."""
    return [
        c
        for c in nb.cells
        if c.cell_type == "code" and c.source.strip() and c.execution_count is None
    ]


def problem(md):
    """Why the .ipynb is not the executed twin of the text `md`, in words; None if it is."""
    twin = md.with_suffix(".ipynb")
    if not twin.exists():
        return f"{twin.name} is missing"
    stored = nbformat.read(twin, as_version=4)
    if inputs(stored) != inputs(read_text(md)):
        return f"{md.name} and {twin.name} are out of step"
    if cells := never_executed(stored):
        return f"{twin.name} has a cell that was never executed: {cells[0].source.splitlines()[0]}"
    return None


def execute(md):
    """Run one chapter and write its .ipynb; returns the seconds it took."""
    start = time.perf_counter()
    nb = read_text(md)
    client = NotebookClient(
        nb,
        timeout=600,
        kernel_name="python3",
        record_timing=False,  # times would differ on every run
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],  # its warnings are not the chapter's
        resources={"metadata": {"path": str(md.parent)}},
    )
    client.execute()
    nb.metadata.pop("language_info", None)  # carries the Python version
    part = md.with_suffix(".ipynb.part")  # an interrupted run leaves the old file whole
    part.write_text(nbformat.writes(nb).rstrip("\n") + "\n", "utf-8")
    part.replace(md.with_suffix(".ipynb"))
    return time.perf_counter() - start


def first_picture(ipynb):
    """The bytes of the first PNG among a notebook's outputs; None if there is none."""
    for cell in nbformat.read(ipynb, as_version=4).cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                return base64.b64decode(output["data"]["image/png"])
    return None


def refresh_story(book=BOOK):
    """Keep the README's picture equal to the first figure of the introduction."""
    intro, story = book / "intro.ipynb", book / STORY
    picture = first_picture(intro) if intro.exists() else None
    if picture and (not story.exists() or story.read_bytes() != picture):
        story.parent.mkdir(exist_ok=True)
        story.write_bytes(picture)
        print(f"{story.name} renewed from {intro.name}")


def prepare_environment(environ=os.environ):
    """What kernels inherit: this tree's cvlib; one BLAS thread, so that sums keep their order."""
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
    for name in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
        environ.setdefault(name, "1")
    environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # else the debugger warns on stderr


def selected(names, everything):
    """The chapters to execute, and how many exist."""
    found = chapters()
    if names:
        by_name = {p.stem: p for p in found}
        stems = [Path(n).name.removesuffix(".md").removesuffix(".ipynb") for n in names]
        if unknown := [s for s in stems if s not in by_name]:
            sys.exit(f"no chapter {unknown[0]!r} in book/; there are: {', '.join(by_name)}")
        return [by_name[s] for s in stems], len(found)
    return [p for p in found if everything or problem(p)], len(found)


def main():
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("names", nargs="*", help="chapters, e.g. 02-one-control-variate")
    parser.add_argument("--all", action="store_true", help="execute every chapter")
    parser.add_argument("--jobs", type=int, default=2, help="chapters at a time (2)")
    args = parser.parse_args()
    prepare_environment()
    import matplotlib.font_manager  # noqa: F401  a first use builds a cache and says so on stderr

    for md in chapters():
        tidy(md)
    todo, total = selected(args.names, args.all)
    failed = 0
    with ProcessPoolExecutor(args.jobs) as pool:
        jobs = {pool.submit(execute, md): md for md in todo}
        for job in as_completed(jobs):
            try:
                print(f"{jobs[job].stem}: executed in {job.result():.1f} s", flush=True)
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                failed += 1
                words = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # without colours
                print(f"{jobs[job].stem}: FAILED, .ipynb left as it was\n{words}", flush=True)
    refresh_story()
    done, kept = len(todo) - failed, total - len(todo)
    print(f"{done} of {total} chapters executed, {failed} failed, {kept} left as they were")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
