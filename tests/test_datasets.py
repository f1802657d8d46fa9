"""The three data sets: the files, their shapes, scalings and labels.

The checks take the package, so that they can be run on copies with a bug (tests/harness.py).
"""

import csv
import hashlib
from importlib import resources

import numpy as np
import pytest
from numpy.testing import assert_allclose

SETS = {"australian": (690, 14, 307), "ionosphere": (351, 34, 225), "sonar": (208, 60, 111)}


def raw(name):
    """The file by the csv module: features (N, d) and 0/1 labels."""
    text = (resources.files("cvlib") / "data" / f"{name}.csv").read_text()
    table = np.array([[float(x) for x in row] for row in list(csv.reader(text.splitlines()))[1:]])
    return table[:, :-1], table[:, -1]


def said(act):
    """The words of a ValueError, "" when there was none; of another error, its name too."""
    try:
        act()
    except ValueError as error:
        return str(error)
    except Exception as error:
        return repr(error)
    return ""


def test_the_file_is_the_one_named_in_its_readme(cv):
    folder = resources.files(cv.__name__) / "data"
    for name in SETS:
        digest = hashlib.sha256((folder / f"{name}.csv").read_bytes()).hexdigest()
        assert digest in (folder / "README.md").read_text()


def test_shapes_scaling_and_labels(cv):
    for name, (N, d, positive) in SETS.items():
        X, y = cv.datasets.load(name)
        features, labels = raw(name)
        assert X.shape == (N, d + 1) and y.shape == (N,)
        assert np.all(X[:, -1] == 1)
        assert set(y) == {-1.0, 1.0} and (y == 1).sum() == positive
        assert np.array_equal(y == 1, labels == 1)
        for j in range(d):
            column, original = X[:, j], features[:, j]
            if np.ptp(original) == 0:
                assert np.all(column == 0)
            else:
                assert (column.min(), column.max()) == (-1, 1)
                assert_allclose(np.corrcoef(column, original)[0, 1], 1)


def test_other_scalings(cv):
    for name in SETS:
        features, _ = raw(name)
        X, _ = cv.datasets.load(name, features="raw")
        assert np.array_equal(X[:, :-1], features)
        X, _ = cv.datasets.load(name, features="standardised")
        varies = np.ptp(features, axis=0) > 0
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
        try:
            same = load("sonar", rows=rows)
        except Exception as error:
            pytest.fail(f"rows as a {type(rows).__name__}: {error!r}")
        assert np.array_equal(same[0], X) and np.array_equal(same[1], y)
    shuffled = load("sonar", "raw", rows=(5, 3, 3))[0]
    assert np.array_equal(shuffled, load("sonar", "raw")[0][[5, 3, 3]])


def test_toy_set(cv):
    """Two clouds of unit variance about (1, 1/2) and its negative, labels in turn."""
    X, y = cv.datasets.toy(10, seed=3)
    assert X.shape == (10, 2) and y.tolist() == [1.0, -1.0] * 5
    assert np.array_equal(X, cv.datasets.toy(10, seed=3)[0])
    assert not np.array_equal(X, cv.datasets.toy(10, seed=4)[0])
    X, y = cv.datasets.toy(20_000)
    assert cv.datasets.toy()[0].shape == (60, 2) and np.array_equal(y[:60], cv.datasets.toy()[1])
    for label in 1, -1:
        cloud = X[y == label]
        assert_allclose(cloud.mean(0), [label, label / 2], atol=0.05)  # five standard errors
        assert_allclose(np.cov(cloud.T), np.eye(2), atol=0.07)


def test_wrong_names_list_the_right_ones(cv):
    load = cv.datasets.load
    words = said(lambda: load("iris"))
    assert words == "unknown data set 'iris': choose one of ['australian', 'ionosphere', 'sonar']"
    words = said(lambda: load("sonar", features="unit"))
    assert words == "features='unit': choose one of ['raw', 'scaled', 'standardised']"
    assert "leaves no data point of sonar" in said(lambda: load("sonar", rows=[]))
    assert "rows=3: give a list" in said(lambda: load("sonar", rows=3))


def test_ionosphere_has_its_constant_column():
    features, _ = raw("ionosphere")
    assert np.flatnonzero(np.ptp(features, axis=0) == 0).tolist() == [1]
