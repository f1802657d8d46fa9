"""Special functions against autograd's own and against differences."""

import numpy as np
import properties_models
import pytest
from autograd.test_util import check_grads

import cvlib as cv
from cvlib import special


def test_values_and_two_derivatives_are_autograd_s():
    properties_models.check_special(cv)


@pytest.mark.parametrize("name", properties_models.SPECIAL)
def test_two_derivatives_by_differences(name):
    f, x = properties_models.SPECIAL[name]
    x = np.where(x == 0.01, 0.3, x)  # so near a pole differences are worth nothing
    x = x + 1e4 if "far" in name else x
    np.random.seed(0)  # noqa: NPY002  autograd takes its random directions from there
    check_grads(lambda x: f(special, x), modes=["rev"])(x)
