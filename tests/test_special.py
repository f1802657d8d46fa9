"""Special functions against SciPy's, and their derivatives against differences."""

import pickle

import numpy as np
import pytest
from autograd.test_util import check_grads
from scipy import special as right

from cvlib import special

X = np.array([[0.2, 1.0, 3.7], [12.5, 0.3, 250.0]])
CALLS = {
    "gammaln": lambda s, x: s.gammaln(x),
    "psi": lambda s, x: s.psi(x),
    "polygamma": lambda s, x: s.polygamma(2, x),
    "betaln": lambda s, x: s.betaln(x, X[0]),
    "expit": lambda s, x: s.expit(x),
    "logsumexp": lambda s, x: s.logsumexp(x, -1, keepdims=True),
    "log_ndtr": lambda s, x: s.log_ndtr(x - 5),
}


@pytest.mark.parametrize("name", CALLS)
def test_value_and_two_derivatives(name):
    call = CALLS[name]
    assert np.array_equal(call(special, X), call(right, X))
    np.random.seed(0)  # noqa: NPY002  autograd takes its random directions from there
    check_grads(lambda x: call(special, x), modes=["rev"])(X)


def test_a_likelihood_with_them_can_be_sent_to_a_worker():
    assert pickle.loads(pickle.dumps(special.gammaln)) is special.gammaln
