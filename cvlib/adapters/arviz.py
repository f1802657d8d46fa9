"""A fit as ArviZ's groups, `InferenceData` or `DataTree`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import whole
from ..models.density import Density
from . import Package

arviz = Package("arviz", "ArviZ")


def to_arviz(
    fit: Any, n: int = 1000, seed: int = 0, predict: Callable | None = None,
    corrected: bool | None = None,
) -> Any:  # fmt: skip
    """ArviZ's groups: posterior, log_likelihood, posterior_predictive if `predict`.

    Draws are those of `fit.draws`, with log p in sample_stats, `lp`. Where they are q's, because
    that is shown or `corrected` is False, `log_q` is there too, for `loo_approximate_posterior`.
    Names of axes and their labels come along with a model of PyMC or NumPyro, and its observed and
    constant data.
    """
    made, old = arviz.from_dict, arviz.__version__.startswith("0.")
    chain = lambda arrays: {name: np.asarray(x)[None] for name, x in arrays.items()}
    model, rng = fit.model, np.random.default_rng(whole("seed", seed, 0))
    z = fit._points(n, rng, corrected)
    stats = {"lp": Density(model).value(z)}
    if corrected is False or fit.shown == "q":
        stats["log_q"] = fit.q.log_q(fit.w, z)
    groups = {"posterior": chain(fit.named(z)), "sample_stats": chain(stats)}
    if rows := model.each_row(z):
        groups["log_likelihood"] = chain(rows)
    if predict is not None:
        groups["posterior_predictive"] = chain({"y": fit._predicted(predict, z, rng)})
    more = {"constant_data": model.constants, "observed_data": model.observed}
    groups |= {name: given for name, given in more.items() if given}
    known = {name for group in groups.values() for name in group}
    about = {"coords": model.coords, "dims": {k: x for k, x in model.dims.items() if k in known}}
    return made(**groups, **about) if old else made(groups, **about)
