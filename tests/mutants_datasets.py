"""Plausible bugs of `cvlib.datasets`; harness.py says what the entries are."""

FILE = "datasets.py"

MUTANTS = [
    (
        "`rows` as a tuple",
        FILE,
        "table[list(rows) if isinstance(rows, tuple) else rows]",
        "table[rows]",
    ),
    (
        "rows picked after the scaling",
        FILE,
        "_SCALES[features](table[:, :-1])",
        "_SCALES[features](table[:, :-1])[::-1]",
    ),
    (
        "a changed file is read",
        FILE,
        "if hashlib.sha256(content).hexdigest() != SHA256[name]:",
        "if False:",
    ),
    ("the first row taken for names", FILE, "splitlines()[1:]", "splitlines()[2:]"),
    ("labels swapped", FILE, "== 1, 1.0, -1.0)", "== 1, -1.0, 1.0)"),
    ("labels 0 and 1", FILE, "== 1, 1.0, -1.0)", "== 1, 1.0, 0.0)"),
    (
        "the column of ones comes first",
        FILE,
        "np.column_stack([X, np.ones(len(X))])",
        "np.column_stack([np.ones(len(X)), X])",
    ),
    ("scaled to [0, 1]", FILE, "2 * (X - low) / width - 1", "(X - low) / width"),
    ("a constant column is -1", FILE, "- 1, 0.0)", "- 1, -1.0)"),
    ("standardised without its mean", FILE, "(X - X.mean(0)) / np", "X / np"),
    ("standardised with n - 1", FILE, "sd = X.std(0)", "sd = X.std(0, ddof=1)"),
    (
        "any row number will do",
        FILE,
        "if np.ndim(rows) != 1 and not isinstance(rows, slice):",
        "if False:",
    ),
    ("toy: one cloud", FILE, "+ y[:, None] * np", "+ 0 * y[:, None] * np"),
    ("toy: always the same", FILE, "default_rng(seed)", "default_rng(0)"),
]
