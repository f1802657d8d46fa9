"""Execute the text notebooks of book/ and store them, with outputs, as their .ipynb twins.

    python tools/notebooks.py             chapters whose text changed since they were executed;
                                          where code did not, they keep their outputs
    python tools/notebooks.py one-control-variate ...    these chapters, changed or not
    python tools/notebooks.py --all       every chapter (after a change in cvlib or in the pins)
    python tools/notebooks.py --check     none: say what is wrong with the chapters, for `make book`

The text is the source: edits made in an .ipynb alone are lost. A second run writes the same bytes.
"Changed" looks at the chapter's text only; outputs that a change in cvlib made stale are found by
`make test`, which names the chapter.
"""

import argparse
import base64
import hashlib
import io
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import jupytext
import nbformat
import yaml
from jupytext.config import load_jupytext_config
from jupytext.myst import MystMetadataParsingError
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
STORY = Path("_static/story.png")  # inside book/: the README's picture
FAILURES = CellExecutionError, CellTimeoutError, DeadKernelError
HEADER = {"mystnb", "tags"}  # what a cell's header may hold; Lab keeps the rest out of the text
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def chapters(book=BOOK):
    """The text notebooks of a folder; a page without a kernel in its front matter is plain text."""
    front_matter = lambda md: md.read_text("utf-8").split("\n---", 1)[0]
    return [md for md in sorted(book.glob("*.md")) if "\nkernelspec:" in front_matter(md)]


class BadText(Exception):
    """A chapter that cannot be read: which, where, and what to do."""


def parse(md):
    """The chapter's text as jupytext reads it, with the settings of its folder."""
    try:
        nb = jupytext.read(md, config=load_jupytext_config(str(md)))
    except (MystMetadataParsingError, yaml.YAMLError) as error:
        raise BadText(
            f"{md.name} cannot be read: {error}\n"
            "Mend the lines between --- and ---. Words that hold a colon need quotes: "
            "caption: 'Dots: measured'"
        ) from None
    for cell in nb.cells:
        if unknown := set(cell.metadata) - HEADER:
            raise BadText(
                f"{md.name}: {', '.join(sorted(unknown))!r} in the header of the cell that begins "
                f"{first_line(cell)!r}; a header holds {' and '.join(sorted(HEADER))} only"
            )
    return nb


def read_text(md):
    """The chapter's text as a notebook without outputs; a cell's id is a digest of its source."""
    nb = parse(md)
    seen = {}
    for cell in nb.cells:
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        cell["metadata"] = nbformat.from_dict(dict(cell.metadata))
    nb.metadata.get("jupytext", {}).pop("text_representation", None)  # Lab leaves it out, too
    nb.nbformat, nb.nbformat_minor = 4, 5
    return nb


def saved(md):
    """The chapter's text as Jupyter Lab saves it, each caption and alt text as one paragraph."""
    nb = parse(md)
    nb.metadata["kernelspec"] = KERNEL
    for cell in nb.cells:
        for part, words in ("figure", "caption"), ("image", "alt"):
            shown = cell.metadata.get("mystnb", {}).get(part) or {}
            if isinstance(shown.get(words), str):
                shown[words] = " ".join(shown[words].split())
    return jupytext.writes(nb, "md:myst", config=load_jupytext_config(str(md)))


def tidy(md):
    """Write the text as Lab would, so that a save there shows only what was edited."""
    text = saved(md)
    if text != md.read_text("utf-8"):
        md.write_text(text, "utf-8")
        print(f"{md.name}: rewrapped as Jupyter Lab saves it")


def first_line(cell):
    return (cell.source.strip().splitlines() or [""])[0]


def inputs(nb):
    """What a pair must share. An id is the digest of the source that was executed, so a cell edited
    in Lab is told by it; what else Lab writes (trust, folded headings, the Python version) is not
    looked at."""
    header = lambda cell: {k: cell.metadata[k] for k in HEADER & set(cell.metadata)}
    return (
        nb.metadata.get("kernelspec"),
        nb.metadata.get("jupytext", {}).get("formats"),
        [(c.get("id"), c.cell_type, c.source, header(c)) for c in nb.cells],
    )


def problem(md):
    """Why the .ipynb is not the executed twin of the text `md`, in words; None if it is."""
    twin = md.with_suffix(".ipynb")
    if failure(md).exists():
        return f"the last execution of {md.name} failed ({failure(md).read_text('utf-8')})"
    if not twin.exists():
        return f"{twin.name} is missing"
    stored = nbformat.read(twin, as_version=4)
    if inputs(stored) != inputs(read_text(md)):
        return f"{md.name} and {twin.name} are out of step"
    code = [cell for cell in stored.cells if cell.cell_type == "code" and cell.source.strip()]
    for cell in code:
        for output in cell.outputs:
            if output.output_type == "error":
                return f"{twin.name} holds an error: {output.ename}: {output.evalue}"
    for count, cell in enumerate(code, 1):
        if cell.execution_count != count:
            return (
                f"{twin.name} was not run from top to bottom, see the cell that begins "
                f"{first_line(cell)!r}"
            )
    return None


def failure(md):
    """Where the last words of a failed execution are kept until one succeeds."""
    return md.with_suffix(".failed")


def pages_of_toc(root=ROOT):
    """Every file the table of contents names, with its suffix if it has one."""
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    return [toc["root"]] + [c["file"] for part in toc["parts"] for c in part["chapters"]]


def numbers(root=ROOT):
    """{page: its chapter's number}: the pages of numbered parts but the last, the appendices."""
    parts = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))["parts"]
    files = [c["file"] for part in parts[:-1] if "numbered" in part for c in part["chapters"]]
    return {file.removesuffix(".ipynb"): k for k, file in enumerate(files, 1)}


def check(book=BOOK):
    """Everything that keeps the book from showing its text, each with its remedy."""
    found = [f"{what}: run make notebooks" for what in map(problem, chapters(book)) if what]
    named = pages_of_toc(book.parent)
    for md in sorted(book.glob("*.md")):
        page = f"{book.name}/{md.stem}" + ".ipynb" * (md in chapters(book))
        if page not in named:
            found.append(f"{md.name} is in no part of _toc.yml: add the line - file: {page}")
    return found


def execute(md):
    """Run one chapter and write its .ipynb; returns the seconds it took."""
    start = time.perf_counter()
    nb = read_text(md)
    print(f"{md.stem}: executing", flush=True)
    client = NotebookClient(
        nb,
        timeout=600,
        kernel_name="python3",
        record_timing=False,  # times would differ on every run
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],  # its warnings are not the chapter's
        resources={"metadata": {"path": str(md.parent)}},
    )
    try:
        client.execute()
    except FAILURES as error:
        words = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
        failure(md).write_text(": ".join(words).splitlines()[0], "utf-8")
        raise
    failure(md).unlink(missing_ok=True)
    shrink_pictures(nb)
    write(nb, md)
    return time.perf_counter() - start


def write(nb, md):
    """The .ipynb of a chapter, whole or not at all."""
    nb.metadata.pop("language_info", None)  # carries the Python version
    part = md.with_suffix(".ipynb.part")  # an interrupted run leaves the old file whole
    part.write_text(nbformat.writes(nb).rstrip("\n") + "\n", "utf-8")
    part.replace(md.with_suffix(".ipynb"))


def reworded(md):
    """Write the .ipynb of a chapter whose code is as it was executed; False if it is not."""
    twin = md.with_suffix(".ipynb")
    if failure(md).exists() or not twin.exists():
        return False
    nb, old = read_text(md), nbformat.read(twin, as_version=4)
    new, done = ([c for c in x.cells if c.cell_type == "code"] for x in (nb, old))
    if [c["id"] for c in new] != [c.get("id") for c in done]:  # digests of what was executed
        return False
    for cell, executed in zip(new, done):
        cell["outputs"], cell["execution_count"] = executed.outputs, executed.execution_count
    write(nb, md)
    return problem(md) is None


def pictures(nb):
    """The data of each output of a notebook that has a PNG, and its bytes."""
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                yield output.data, base64.b64decode(output.data["image/png"])


def shrink_pictures(nb):
    """Keep each PNG among the outputs with 256 colours of its own: it looks the same, and the site
    and what readers download are a third of the size."""
    for data, picture in pictures(nb):
        full, small = Image.open(io.BytesIO(picture)), io.BytesIO()
        few = full.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(small, "png", optimize=True)
        data["image/png"] = base64.b64encode(small.getvalue()).decode()


def first_picture(ipynb):
    """The bytes of the first PNG among a notebook's outputs; None if there is none."""
    return next((png for _, png in pictures(nbformat.read(ipynb, as_version=4))), None)


def refresh_story(book=BOOK):
    """Keep the README's picture equal to the first figure of the introduction."""
    intro, story = book / "intro.ipynb", book / STORY
    picture = first_picture(intro) if intro.exists() else None
    if picture and (not story.exists() or story.read_bytes() != picture):
        story.parent.mkdir(exist_ok=True)
        story.write_bytes(picture)
        print(f"{story.name} renewed from {intro.name}")


def prepare_environment(environ=os.environ):
    """What kernels inherit: this tree's cvlib, experiments and tools; one BLAS thread, so that sums
    keep their order."""
    paths = str(ROOT), str(ROOT / "tools"), environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
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


def run(todo, jobs):
    """Execute these chapters, `jobs` at a time; returns how many failed."""
    pool = ThreadPoolExecutor(jobs)  # the work is done by their kernels
    running = {pool.submit(execute, md): md for md in todo}
    failed = 0
    for job in as_completed(running):
        name = running[job].stem
        try:
            print(f"{name}: executed in {job.result():.1f} s", flush=True)
        except FAILURES as error:
            failed += 1
            words = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # without colours
            print(f"{name}: FAILED, .ipynb left as it was\n{words}", flush=True)
    return failed


def main():
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("names", nargs="*", help="chapters, e.g. one-control-variate")
    parser.add_argument("--all", action="store_true", help="execute every chapter")
    parser.add_argument("--check", action="store_true", help="execute none, say what is wrong")
    parser.add_argument("--jobs", type=int, default=2, help="chapters at a time (2)")
    args = parser.parse_args()
    if args.check:
        sys.exit("\n".join(check()) or 0)
    prepare_environment()
    import matplotlib.font_manager  # noqa: F401  a first use builds a cache and says so on stderr

    for md in chapters():
        tidy(md)
    todo, total = selected(args.names, args.all)
    words = [] if args.names or args.all else [md for md in todo if reworded(md)]
    todo = [md for md in todo if md not in words]
    failed = run(todo, args.jobs)
    refresh_story()
    done, kept = len(todo) - failed, total - len(todo) - len(words)
    print(
        f"{done} of {total} chapters executed, {failed} failed, "
        f"{len(words)} reworded, {kept} left as they were"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    try:
        main()
    except BadText as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("\nStopped; a chapter that was not yet executed is as it was", flush=True)
        os._exit(130)  # the threads wait for kernels, which end when this process does
