"""Jupyter Lab on the chapters; the options are those of jupyter lab.

    python tools/lab.py [--port 8899] [--no-browser] ...

Kernels get the settings under which `make notebooks` executes, so that they print the same. A save
leaves out the version of Python, so that a chapter that was only run stays as it is in git.
"""

import os
import sys

import notebooks
from jupyterlab.labapp import LabApp

ALLOW_ROOT = "--allow-root"


def leave_out_language(model, **_):
    """What Lab calls before a save: the notebook without what depends on the machine."""
    if model["type"] == "notebook":
        model["content"]["metadata"].pop("language_info", None)


def main(options):
    if os.geteuid() == 0 and ALLOW_ROOT not in options:
        sys.exit(
            "Jupyter Lab does not run as root unless told to: whoever reaches its page can then do "
            f"anything on this machine.\nAs another user, make lab; or: make lab ARGS={ALLOW_ROOT}"
        )
    print(
        "Lab is for running and changing the chapters. To read them, with theorems, references and "
        "captions set, open\nthe built book: "
        f"{notebooks.ROOT / '_build/html/index.html'} (make book builds it).",
        flush=True,
    )
    notebooks.prepare_environment()
    server = LabApp.initialize_server([str(notebooks.BOOK), *options])
    server.contents_manager.register_pre_save_hook(leave_out_language)
    server.start()


if __name__ == "__main__":
    main(sys.argv[1:])
