"""`import cvlib` brings what it needs at once, and nothing that is needed later or never."""

import subprocess
import sys

LATER = (
    "scipy.special", "scipy.linalg", "importlib.resources", "html", "gzip", "autograd.scipy",
    "matplotlib", "joblib", "threadpoolctl", "tqdm", "experiments",
)  # fmt: skip


def test_what_import_brings():
    code = f"import cvlib, sys; print([name for name in {LATER} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_what_the_experiments_bring():
    """Every chapter imports them: a part of scipy costs as much as all the rest."""
    code = "import experiments, sys; print([n for n in sys.modules if n.startswith('scipy.s')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
