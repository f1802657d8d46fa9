"""The three data sets: the files, their shapes, scalings and labels."""

import csv
import hashlib
from importlib import resources

import numpy as np
from numpy.testing import assert_allclose

SETS = {"australian": (690, 14, 307), "ionosphere": (351, 34, 225), "sonar": (208, 60, 111)}


def raw(name):
    """The file by the csv module: features (N, d) and 0/1 labels."""
    text = (resources.files("cvlib") / "data" / f"{name}.csv").read_text()
    table = np.array([[float(x) for x in row] for row in list(csv.reader(text.splitlines()))[1:]])
    return table[:, :-1], table[:, -1]


def test_the_file_is_the_one_named_in_its_readme(cv):
    folder = resources.files(cv.__name__) / "data"
    for name in SETS:
        digest = hashlib.sha256((folder / f"{name}.csv").read_bytes()).hexdigest()
        assert digest in (folder / "README.md").read_text()


def test_shapes_scaling_and_labels(cv):
    for name, (N, d, positive) in SETS.items():
        X, y = cv.datasets.load(name)
        features, labels = raw(name)
        varies = np.ptp(features, axis=0) > 0
        assert np.flatnonzero(~varies).tolist() == ([1] if name == "ionosphere" else [])
        assert X.shape == (N, d + 1) and y.shape == (N,)
        assert np.all(X[:, -1] == 1)
        assert set(y) == {-1.0, 1.0} and (y == 1).sum() == positive
        assert np.array_equal(y == 1, labels == 1)
        for j in range(d):
            assert (X[:, j].min(), X[:, j].max()) == ((-1, 1) if varies[j] else (0, 0))
            if varies[j]:
                assert_allclose(np.corrcoef(X[:, j], features[:, j])[0, 1], 1)
        assert np.array_equal(cv.datasets.load(name, features="raw")[0][:, :-1], features)
        X, _ = cv.datasets.load(name, features="standardised")
        assert np.all(X[:, -1] == 1)
        assert_allclose(X[:, :-1].mean(0), 0, atol=1e-12)
        assert_allclose(X[:, :-1].std(0), varies.astype(float), atol=1e-12)


def test_rows_are_picked_before_the_scaling(cv):
    """A mask, an array, a list, a tuple or a slice of the same rows are the same data."""
    load, mask = cv.datasets.load, np.arange(208) % 2 == 0
    X, y = load("sonar", rows=mask)
    assert X.shape == (104, 61) and np.all(X[:, :-1].max(0) == 1) and np.all(X[:, :-1].min(0) == -1)
    assert np.array_equal(y, load("sonar")[1][mask])
    assert np.array_equal(load("sonar", "raw", rows=mask)[0], load("sonar", "raw")[0][mask])
    numbers = range(0, 208, 2)
    for rows in np.array(numbers), list(numbers), tuple(numbers), slice(0, None, 2), list(mask):
        same = load("sonar", rows=rows)
        assert np.array_equal(same[0], X) and np.array_equal(same[1], y)
    shuffled = load("sonar", "raw", rows=(5, 3, 3))[0]
    assert np.array_equal(shuffled, load("sonar", "raw")[0][[5, 3, 3]])


def test_toy_set(cv):
    """Two clouds of unit variance about (1, 1/2) and its negative, labels in turn."""
    X, y = cv.datasets.toy(10, seed=3)
    assert X.shape == (10, 2) and y.tolist() == [1.0, -1.0] * 5
    X, y = cv.datasets.toy(20_000)
    assert cv.datasets.toy()[0].shape == (60, 2) and np.array_equal(y[:60], cv.datasets.toy()[1])
    for label in 1, -1:
        cloud = X[y == label]
        assert_allclose(cloud.mean(0), [label, label / 2], atol=0.05)  # five standard errors
        assert_allclose(np.cov(cloud.T), np.eye(2), atol=0.07)
