"""Milliseconds a step of each way to train the autoencoder of chapter 25, float32 and one thread.

All take turns in one process, and the shortest of many turns counts. Importing and compiling are
not counted. Run it on a quiet machine: python -m benchmarks.vae --save
"""

import argparse
from time import process_time

import numpy as np

from benchmarks import stored
from experiments import plans

STEPS = 50  # of a turn
RESULTS = stored.path("vae_steps")


def milliseconds(turns):
    """{"latent way K": milliseconds of this process a step}."""
    import jax

    from experiments import vae

    luck, x = vae.Luck(0), vae.images()[0].astype("float32")
    single = lambda tree: jax.tree.map(lambda v: np.asarray(v, "float32"), tree)
    work = {}
    for latent, groups in plans.CODES.items():
        for way, K in [(way, K) for K, ways in groups.items() for way in ways]:
            start, rates = vae.fresh(latent, luck.start), np.full(STEPS, 0.01)
            seen = single((start, rates, *luck.steps(latent, x, K, STEPS)))
            climb = vae.climber(latent, way)
            work[f"{latent} {way} {K}"] = lambda climb=climb, seen=seen: climb(*seen)
    best = dict.fromkeys(work, np.inf)
    for turn in range(turns + 1):  # the first one compiles
        for name, f in work.items():
            start = process_time()
            jax.block_until_ready(f())
            if turn:
                best[name] = min(best[name], process_time() - start)
    return {name: float(f"{1e3 * seconds / STEPS:.3g}") for name, seconds in best.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name} for the book")
    parser.add_argument("--turns", type=int, default=30, help="for each way (30)")
    options = parser.parse_args()
    steps = milliseconds(options.turns)
    for name, each in steps.items():
        print(f"{each:7.3f} ms  {name}")
    if options.save:
        stored.save(RESULTS, ("numpy", "jax"), steps=steps)


if __name__ == "__main__":
    main()
