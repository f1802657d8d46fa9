"""Special functions against autograd's own and against differences."""

import numpy as np
import pytest
import test_own_models
from autograd.test_util import check_grads

from cvlib import special


@pytest.mark.parametrize("name", test_own_models.SPECIAL)
def test_two_derivatives_by_differences(name):
    f, x = test_own_models.SPECIAL[name]
    x = np.where(x == 0.01, 0.3, x)  # so near a pole differences are worth nothing
    x = x + 1e4 if "far" in name else x
    np.random.seed(0)  # noqa: NPY002  autograd takes its random directions from there
    check_grads(lambda x: f(special, x), modes=["rev"])(x)
