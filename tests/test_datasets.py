"""The three data sets: the files, their shapes, scalings and labels."""

import csv
import hashlib
from importlib import resources

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cvlib as cv

SETS = {"australian": (690, 14, 307), "ionosphere": (351, 34, 225), "sonar": (208, 60, 111)}
sets = pytest.mark.parametrize("name", SETS)


def raw(name):
    """The file by the csv module: features (N, d) and 0/1 labels."""
    text = (resources.files("cvlib") / "data" / f"{name}.csv").read_text()
    table = np.array([[float(x) for x in row] for row in list(csv.reader(text.splitlines()))[1:]])
    return table[:, :-1], table[:, -1]


@sets
def test_the_file_is_the_one_named_in_its_readme(name):
    folder = resources.files("cvlib") / "data"
    digest = hashlib.sha256((folder / f"{name}.csv").read_bytes()).hexdigest()
    assert digest == cv.datasets.SHA256[name]
    assert digest in (folder / "README.md").read_text()


@sets
def test_shapes_scaling_and_labels(name):
    N, d, positive = SETS[name]
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


@sets
def test_other_scalings(name):
    features, _ = raw(name)
    X, _ = cv.datasets.load(name, features="raw")
    assert np.array_equal(X[:, :-1], features)
    X, _ = cv.datasets.load(name, features="standardised")
    varies = np.ptp(features, axis=0) > 0
    assert_allclose(X[:, :-1].mean(0), 0, atol=1e-12)
    assert_allclose(X[:, :-1].std(0), varies.astype(float), atol=1e-12)


def test_ionosphere_has_its_constant_column():
    features, _ = raw("ionosphere")
    assert np.flatnonzero(np.ptp(features, axis=0) == 0).tolist() == [1]


def test_rows_are_picked_before_the_scaling():
    keep = np.arange(208) % 2 == 0
    X, y = cv.datasets.load("sonar", rows=keep)
    assert X.shape == (104, 61) and np.all(X[:, :-1].max(0) == 1) and np.all(X[:, :-1].min(0) == -1)
    by_index, _ = cv.datasets.load("sonar", rows=np.flatnonzero(keep))
    assert np.array_equal(X, by_index)
    assert np.array_equal(y, cv.datasets.load("sonar")[1][keep])


def test_a_changed_file_is_noticed(monkeypatch):
    monkeypatch.setitem(cv.datasets.SHA256, "sonar", "0" * 64)
    with pytest.raises(ValueError, match="sonar.csv is not the file"):
        cv.datasets.load("sonar")


def test_toy_set():
    X, y = cv.datasets.toy(10, seed=3)
    assert X.shape == (10, 2) and set(y) == {-1.0, 1.0}
    assert np.array_equal(X, cv.datasets.toy(10, seed=3)[0])


def test_wrong_names_list_the_right_ones():
    with pytest.raises(ValueError, match="'iris'.*australian.*ionosphere.*sonar"):
        cv.datasets.load("iris")
    with pytest.raises(ValueError, match="'unit'.*raw.*scaled.*standardised"):
        cv.datasets.load("sonar", features="unit")
    with pytest.raises(ValueError, match="leaves no data point of sonar"):
        cv.datasets.load("sonar", rows=[])


def test_one_row_number_is_refused():
    with pytest.raises(ValueError, match="rows=3: give a list"):
        cv.datasets.load("sonar", rows=3)
