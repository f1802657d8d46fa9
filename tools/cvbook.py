"""What the chapters of the book read and use beside the package: it comes with the wheel.

A chapter that lies alone in a folder begins with `import cvbook` and `cvbook.here()`; the notebooks
that the site offers for download do. Inside the project nothing needs it.
"""

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent  # with experiments, their results, and measured times


def here() -> None:
    """Let this session find what a chapter imports, and the files that it reads from book/."""
    sys.path.insert(0, str(FOLDER))
    os.chdir(FOLDER / "experiments")  # its parent is this folder, as that of book/ is the project
