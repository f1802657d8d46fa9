"""The three binary classification sets of the experiments, scaled."""

from typing import Any

import numpy as np

NAMES = "australian", "ionosphere", "sonar"


def load(name: str, features: str = "scaled", rows: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, d) with a last column of ones, and labels (N,) in {-1, +1}.

    `features` is "scaled" (each column to [-1, 1], a constant column to 0), "standardised"
    (mean 0, variance 1) or "raw"; the column of ones is appended in every case. `rows` picks a
    subset of the data points, by index or by mask, before the scaling.
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}: choose one of {list(NAMES)}")
    if features not in _SCALES:
        raise ValueError(f"features={features!r}: choose one of {sorted(_SCALES)}")
    from importlib import resources  # with much that nothing else needs

    content = (resources.files(__package__) / "data" / f"{name}.csv").read_text()
    table = np.loadtxt(content.splitlines()[1:], delimiter=",")
    if rows is not None:
        if np.ndim(rows) != 1 and not isinstance(rows, slice):
            raise ValueError(f"rows={rows!r}: give a list of indices, a mask or a slice")
        table = table[list(rows) if isinstance(rows, tuple) else rows]
    if len(table) == 0:
        raise ValueError(f"rows={rows!r} leaves no data point of {name}")
    X = _SCALES[features](table[:, :-1])
    return np.column_stack([X, np.ones(len(X))]), np.where(table[:, -1] == 1, 1.0, -1.0)


def toy(N: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A 2-D logistic set from a seed: two overlapping clouds; X (N, 2), y (N,) in {-1, +1}."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(N) % 2 == 0, 1.0, -1.0)
    X = rng.standard_normal((N, 2)) + y[:, None] * np.array([1.0, 0.5])
    return X, y


def _scale(X):
    low, high = X.min(0), X.max(0)
    width = np.where(high > low, high - low, 1.0)
    return np.where(high > low, 2 * (X - low) / width - 1, 0.0)


def _standardise(X):
    sd = X.std(0)
    return (X - X.mean(0)) / np.where(sd > 0, sd, 1.0)


_SCALES = {"scaled": _scale, "standardised": _standardise, "raw": lambda X: X}
