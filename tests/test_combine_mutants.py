"""Plausible bugs in `cvlib.combine`, each put into a copy of its source; every one must be caught.

`pytest -s tests/test_combine_mutants.py` prints the table: bug, first check that saw it.
"""

import types
from pathlib import Path

import pytest
from test_combine import CHECKS

from cvlib import combine

SOURCE = Path(combine.__file__).read_text()

# name: (what stands in the source, exactly once; what the bug makes of it)
MUTANTS = {
    "sign of the weights": ("return -scale * np", "return scale * np"),
    "moments divided by M D, not M": ("np.vecdot(C, h) / M", "np.vecdot(C, h) / (M * D)"),
    "C^T C not divided by M": ("C[..., None, :, :]) / M", "C[..., None, :, :])"),
    "the same for many variates": ("np.swapaxes(C, -1, -2) / M", "np.swapaxes(C, -1, -2)"),
    "regulariser twice as large": ("ridge = D * v0", "ridge = 2 * D * v0"),
    "regulariser without D": ("ridge = D * v0", "ridge = v0"),
    "regulariser not divided by M": ("ridge = D * v0", "ridge = M * D * v0"),
    "regulariser on every entry": ("* np.eye(CC.shape[-1])", "* np.ones(CC.shape[-2:])"),
    "regulariser scaled with the variates": (
        "return best_weights(ridge + M * CC, M * Ch)",
        "return best_weights((ridge + 1) * M * CC, M * Ch)",
    ),
    "Ch not multiplied by M": ("ridge + M * CC, M * Ch)", "ridge + M * CC, Ch)"),
    "solution left in scaled units": ("return -scale * np", "return -np"),
    "right-hand side not rescaled": ("np.vecmat(scale * b, U)", "np.vecmat(b, U)"),
    "no rescaling at all": (
        "np.where(size2 > 0, size2, np.inf)",
        "np.where(size2 > 0, 1.0, np.inf)",
    ),
    "rank tolerance too large": ("NOISE = 100 *", "NOISE = 1e13 *"),
    "rounding error inverted": ("np.where(values > noise,", "np.where(values != 0,"),
    "eigenvectors transposed": ("y = np.vecmat(scale * b, U)", "y = np.matvec(U, scale * b)"),
    "prior of h and c forgotten": ("(T_hc + M * Ch) / (n0", "(M * Ch) / (n0"),
    "prior twice, the factor 2": ("Moments((T_cc + M", "Moments((2 * T_cc + M"),
    "kappa and 1 - kappa swapped": (
        "Moments((T_cc + M * CC) / (n0 + M)",
        "Moments((M * T_cc + n0 * CC) / (n0 + M)",
    ),
    "new samples count gamma B": ("seen, B = state.M, new.M", "seen, B = state.M, gamma * new.M"),
    "average started at zero": (
        "CC = (seen * state.CC + B * new.CC) / (seen + B)",
        "CC = (1 - gamma) * state.CC + gamma * new.CC",
    ),
    "gamma and 1 - gamma swapped": ("(1 - gamma) * (seen + B))", "gamma * (seen + B))"),
    "newest samples not discounted": ("(1 - gamma) * (seen + B))", "(1 - gamma) * seen + B)"),
    "old Ch forgotten": ("Ch = (seen * state.Ch + B", "Ch = (B"),
    "start with one sample seen": ("np.zeros((*runs, L)), 0.0)", "np.ones((*runs, L)), 1.0)"),
    "mean over samples is a sum": ("[-2], 1 / h.shape[-2])", "[-2], 1.0)"),
    "mean counts h M times": ("combine((share @ h)", "combine((len(share) * share @ h)"),
    "combine subtracts": ("return h + g.reshape", "return h - g.reshape"),
    "coordinate weights mixed up": ("(a[..., None, :] * C)", "(a[..., ::-1][..., None, :] * C)"),
    "sum of squares for square of sum": (
        "moments.CC.sum((-2, -1))[..., None, None]",
        "np.trace(moments.CC, axis1=-2, axis2=-1)[..., None, None]",
    ),
    "ridge judged on its own samples": (
        "fit(moments(h[..., ~out, :], C[..., ~out, :]))",
        "fit(moments(h[..., out, :], C[..., out, :]))",
    ),
    "penalties taken for coordinates": (
        "combine(h[None, ..., out, :], C[None, ..., out, :], a)",
        "combine(h[..., out, :], C[..., out, :], a)",
    ),
    "ridge chooses the worst": ("np.argmin(risk", "np.argmax(risk"),
    "ridge penalty in other units": ("/ max(L, 1)", "/ max(L, 1) ** 2"),
}


def mutant(old, new):
    """A copy of the module with the bug in it; an error when the patch no longer applies."""
    assert SOURCE.count(old) == 1, f"the patch no longer applies: {SOURCE.count(old)} x {old!r}"
    module = types.ModuleType("mutant")
    exec(compile(SOURCE.replace(old, new), "mutant of combine.py", "exec"), module.__dict__)
    return module


def first_alarm(module):
    """The name of the first check that fails on this module, or None."""
    for name, check in CHECKS.items():
        try:
            check(module)
        except Exception:
            return name
    return None


def test_the_original_raises_no_alarm():
    assert first_alarm(mutant("\n\nimport numpy as np\n", "\n\nimport numpy as np\n")) is None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name):
    alarm = first_alarm(mutant(*MUTANTS[name]))
    print(f"\n{name:40} {alarm or 'NOT CAUGHT'}", end="")
    assert alarm is not None


def test_a_patch_that_does_not_apply_fails():
    with pytest.raises(AssertionError, match="no longer applies"):
        mutant("these words are not in the source", "")
