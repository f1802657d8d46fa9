"""Settings of every pytest run: `pytest --nbval` from any folder of the project tests all of it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import notebooks  # noqa: E402  tools/notebooks.py

notebooks.prepare_environment()  # kernels and the tests themselves run under the same settings


def pytest_configure(config):
    started_inside = config.args_source == config.ArgsSource.INVOCATION_DIR
    if started_inside and config.invocation_params.dir != ROOT:  # no path was named
        config.args = [str(ROOT / folder) for folder in config.getini("testpaths")]
    if not hasattr(config, "workerinput"):
        # The first import builds a font cache and says so on stderr, which nbval would compare.
        import matplotlib.font_manager  # noqa: F401
