"""Truths of the experiments, against other people's chains and densities of SciPy."""

import numpy as np
import pytest
from scipy import stats

from experiments import covered, posteriors, truths


@pytest.mark.parametrize("name", posteriors.names)
def test_truths_agree_with_the_reference_draws(name, monkeypatch):
    """Ten thousand of them: an error of a hundredth of a standard deviation."""
    monkeypatch.setattr(truths, "NODES", (5, 4))
    for size, few in {"GRID": 9, "LOTS": 2, "POINTS": 256}.items():
        monkeypatch.setattr(truths, size, few)
    known, found = posteriors.load(name), truths.truth(name)
    assert np.abs((found.mean - known.mean) / known.sd).max() < 0.035
    assert (found.error / known.sd).max() < 0.02


def test_held_out_truths():
    """Densities by scipy, and means of 300,000 draws of the laws themselves."""
    rng = np.random.default_rng(0)
    model, asked = covered.student6()
    A = np.array([[1, 0, 0], [0.5, 1, 0], [0.5, 0.5, 1]])
    law = stats.multivariate_t(np.zeros(3), A @ A.T, 6)
    agree(model, asked, law.rvs(300_000, rng), law.logpdf)
    model, asked = covered.skewed()
    a, A = [2, 1, 1.5, 3, 5], (np.tri(5) + np.eye(5)) / 2
    x = np.log(rng.gamma(a, size=(300_000, 5)))
    density = lambda z: stats.loggamma(a).logpdf(np.linalg.solve(A, z.T).T).sum(-1)
    agree(model, asked, x @ A.T, density)


def agree(model, asked, z, log_density):
    apart = model.log_joint(z[:50]) - log_density(z[:50])
    assert np.ptp(apart) < 1e-9
    for f, exact in asked.values():
        values = f(z) * 1.0
        assert abs(values.mean() - exact) < 5 * values.std() / 300_000**0.5
