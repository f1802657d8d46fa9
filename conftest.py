"""Settings of every pytest run: `pytest --nbval` from any folder of the project tests all of it."""

from pathlib import Path
from random import Random
from zlib import crc32

import nbval.kernel
import notebooks  # tools/notebooks.py: pyproject.toml has the folder on the path
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parent
notebooks.prepare_environment()  # kernels and the tests themselves run under the same settings


def once_more(start):
    """Begin a kernel; if it does not answer (two may have taken one port), another one."""

    def started(*args, **how):
        try:
            return start(*args, **how)
        except RuntimeError:
            return start(*args, **how)

    return started


nbval.kernel.start_new_kernel = once_more(nbval.kernel.start_new_kernel)


def pytest_addoption(parser):
    what = "take files in another order, which this number decides: no test may need an earlier one"
    parser.addoption("--shuffle", metavar="SEED", default="", help=what)


def pytest_report_header(config):
    seed = config.getoption("shuffle")
    return f"files in the order of --shuffle={seed}" if seed else None


def pytest_configure(config):
    started_inside = config.args_source == config.ArgsSource.INVOCATION_DIR
    if started_inside and config.invocation_params.dir != ROOT:  # no path was named
        config.args = [str(ROOT / folder) for folder in config.getini("testpaths")]
    if not hasattr(config, "workerinput"):
        # The first import builds a font cache and says so on stderr, which nbval would compare.
        import matplotlib.font_manager  # noqa: F401


# With several workers a file is one worker's: a chapter's cells share a kernel, a module's tests
# what they made once. The mutants share nothing. They come last and in small shares, so that all
# workers end at about the same time; chapters, which take longest, come first. Every worker finds
# the order by itself, and all must find the same.


def turn(nodeid, seed):
    """When a test's turn comes: sorted by this, the tests of a file stay together and in order."""
    file = nodeid.split("::")[0]
    chance = seed and Random(f"{seed} {file}").random()
    return "test_mutants" in file, not file.endswith(".ipynb"), chance


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: turn(item.nodeid, config.getoption("shuffle")))


class Shares(LoadFileScheduling):
    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return f"{file} {crc32(nodeid.encode()) % 40}" if "test_mutants" in file else file


def pytest_xdist_make_scheduler(config, log):
    return Shares(config, log)
