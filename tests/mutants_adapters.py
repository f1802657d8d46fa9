"""Plausible bugs of the adapters; harness.py says what the entries are.

The last entry is the model of the package's page that sees the bug. test_adapters.py plants them.
"""

# fmt: off
MUTANTS = [
    ("JAX without log-Jacobians", "from_jax", "log_joint(p) + stretch", "log_joint(p)", "in_jax"),
    ("the potential taken for log p", "from_numpyro", "-info.potential_fn(split(z))",
     "info.potential_fn(split(z))", "in_numpyro"),
    ("the first block for the second", "_in_blocks", "np.arange(first, first + size)",
     "np.arange(size)", "in_jax"),
    ("coordinates named backwards", "compiled._flat", "labels(name, shape)",
     "labels(name, shape)[::-1]", "in_numpyro"),
    ("unconstrained values for parameters", "from_pymc", "constrained(*split(z).values())",
     "split(z).values()",
     "in_pymc"),
    ("the names of value variables", "from_pymc", "model.values_to_rvs[v].name", "v.name",
     "in_pymc"),
]
