"""How a draw sees its data, said by keywords or as one `Sampling`."""

import numpy as np
from test_passes import setting


def test_shapes_of_batches(cv):
    _, model, q, w, _ = setting(cv, "logistic", "Gaussian")
    draw = lambda **kind: cv.draw(model, q, w, M=4, rng=np.random.default_rng(1), **kind)
    plain, one = draw(), draw(batch=1, each=True)  # a batch of one is today's draw, to the bit
    assert np.array_equal(plain.index, one.index[..., 0]) and one.index.shape == (3, 4, 1)
    line = cv.PR(cv.terms(model, q)[0])
    assert np.array_equal(line(plain), line(one))
    given = np.arange(15).reshape(3, 5) % 7
    assert np.array_equal(draw(batch=5, index=given).index[:, 0], given)


def test_sampling_is_one_value(cv):
    S, (_, model, q, w, _) = cv.Sampling, setting(cv, "logistic", "Gaussian")
    shared = [how.shared for how in (S(), S(batch=5), S(batch=5, each=True))]
    assert shared == [False, True, False]
    assert [S(noise=noise).group(q, 6) for noise in ("plain", "pairs", "sobol")] == [1, 2, 6]
    draw = lambda **how: cv.draw(model, q, w, M=4, rng=np.random.default_rng(1), **how)
    one, other = draw(sampling=S(batch=3, noise="pairs")), draw(batch=3, noise="pairs")
    assert np.array_equal(one.eps, other.eps) and np.array_equal(one.index, other.index)
    first, second, third = draw(noise="sobol").eps  # runs are independent
    assert len({first[0, 0], second[0, 0], third[0, 0]}) == 3
