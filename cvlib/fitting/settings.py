"""Every number that a fit goes by."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What `fit` goes by where its arguments do not say: `fit(model, settings=Settings(...))`.

    Budget and end.
        seconds: the budget, where neither seconds nor steps are given.
        tolerance: nats that twice the steps may still gain where a run ends.
        chance: that a run ends with more than that to gain, all looks together.
        looks: draws for a look at the ELBO; the next number where the last one does not tell.
    The family, and where it begins.
        full: unknowns up to which q has a full covariance.
        widths: of Gaussians about a point, tried beside the curvature that a search has seen.
        low: nats for each unknown by which a place far below the mode must be better.
        equal, dip: modes less than `equal` nats apart, with a dip of `dip` nats between, are told.
    Steps.
        fixed: unknowns up to which a full q begins with a search on fixed draws.
        draws: that a step of a full q has at least, or nearly: more radii where unknowns are few.
        reach: standard deviations that a step may go from the mode of some of many rows.
        rate, after: Adam's rate, and the step from which on it falls like t^(-1/2).
    What is distrusted.
        fair: relative effective sample size that weights should leave.
        heavy: k-hat, from which on the tail of the weights is too heavy.
        big: times the mean weight; no tail matters where no weight is larger.
        out: standard deviations of its prior that a coordinate may lie out.
    The bend.
        bend: unknowns up to which q may bend; pairs: up to which all pairs of them do.
        sure: standard errors from zero, of a third moment, that ask for a pair beyond that.
        bend_draws: fixed draws of its three climbs.
        ridge: half of it times the squares of what bends is taken off, in nats.
        gain: nats that a bend must bring on fresh draws, beyond doubt.
        cheap: numbers that fixed draws may make of the data where nobody asked for a bend.

    Half and twice of each were tried on eight posteriors (`python -m benchmarks.settings`). Three
    lose there: half of `pairs` (one model 0.32 nats lower), half of `bend_draws` (0.08), half of
    `looks` (0.02). Three cost: twice the `draws` takes 1.4 times the gradients for nothing, twice
    `fair` and half of `heavy` 3.4 times, for bends that gain 0.08 nats on one model. The others
    change the ELBO by less than 0.02 nats and hardly the gradients: they decide on other models.
    """

    seconds: float = 60.0
    tolerance: float = 0.05
    chance: float = 0.05
    looks: tuple[int, ...] = (250, 1000, 4000)
    full: int = 500
    widths: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01)
    low: float = 2.0
    equal: float = 3.0
    dip: float = 1.0
    fixed: int = 100
    draws: int = 40
    reach: float = 100.0
    rate: float = 0.1
    after: int = 100
    fair: float = 0.5
    heavy: float = 0.7
    big: float = 1.5
    out: float = 6.0
    bend: int = 60
    pairs: int = 20
    sure: float = 5.0
    bend_draws: tuple[int, int, int] = (500, 1000, 2000)
    ridge: float = 0.002
    gain: float = 0.01
    cheap: int = 2**23


DEFAULT = Settings()
