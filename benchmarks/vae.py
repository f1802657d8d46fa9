"""Milliseconds a step of each way to train the autoencoder of chapter 20, float32 and one thread.

All take turns in one process, and the shortest of many turns counts. Importing and compiling are
not counted. Run it on a quiet machine: python -m benchmarks.vae --save
"""

from time import process_time

import numpy as np

from benchmarks import stored
from benchmarks.steps import best_times
from experiments import plans

STEPS = 50  # of a turn


def milliseconds(seconds):
    """{"latent way K": milliseconds of this process a step}."""
    import jax

    from experiments import vae

    luck, x = vae.Luck(0), vae.images()[0].astype("float32")
    single = lambda tree: jax.tree.map(lambda v: np.asarray(v, "float32"), tree)
    work = {}
    fewer = {K: ("stl",) for K in plans.AS_LONG}
    for latent, groups in (*plans.CODES.items(), ("gaussian", fewer)):
        for way, K in [(way, K) for K, ways in groups.items() for way in ways]:
            start, rates = vae.fresh(latent, luck.start), np.full(STEPS, 0.01)
            seen = single((start, rates, *luck.steps(latent, x, K, STEPS)))
            climb = vae.climber(latent, way)
            wait = lambda climb=climb, seen=seen: jax.block_until_ready(climb(*seen))
            work[f"{latent} {way} {K}"] = wait
    times = best_times(work, seconds, clock=process_time)
    return {name: stored.few(1e3 * t / STEPS) for name, t in times.items()}


def measure(seconds):
    steps = milliseconds(seconds)
    for name, each in steps.items():
        print(f"{each:7.3f} ms  {name}")
    return {"steps": steps}


if __name__ == "__main__":
    stored.command(__doc__, "vae_steps", ("numpy", "jax"), measure, seconds=3.0)
