"""Plausible bugs of the adapters; harness.py says what the entries are.

The last entry is the model of the package's page that sees the bug. test_adapters.py plants them.
"""

# fmt: off
MUTANTS = [
    ("JAX without log-Jacobians", "from_jax", "log_joint(p) + stretch", "log_joint(p)", "in_jax"),
    ("the potential taken for log p", "from_numpyro", "-info.potential_fn(split(z))",
     "info.potential_fn(split(z))", "in_numpyro"),
    ("single precision", "_double", "jax.enable_x64(True)", "jax.enable_x64(False)", "in_jax"),
    ("what fills a block is kept", "_in_blocks", "np.asarray(x)[:left]", "np.asarray(x)", "in_jax"),
    ("blocks that overlap", "_in_blocks", "first += size", "first += min(size, 16)", "in_jax"),
    ("every piece begins at zero", "compiled._split", "z[first:last]",
     "z[: last - first]", "in_pymc"),
    ("unconstrained values for parameters", "from_pymc",
     "v not in inside or v.name in names", "v in inside", "in_pymc"),
    ("the names of value variables", "from_pymc", "model.values_to_rvs[v].name", "v.name",
     "in_pymc"),
]
