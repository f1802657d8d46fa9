"""Plausible bugs of `cvlib.zoo`; harness.py says what the entries are."""

MUTANTS = [
    ("a term forgotten", "zoo.py", "data + prior, data - variational,", "data + prior,"),
    ("an approximation forgotten", "zoo.py", ', "bound": bound,', ","),
    ("a method forgotten", "zoo.py", '"RP2": RP2, "GR"', '"GR"'),
    ("all data are the drawn data", "zoo.py", "on[ALL] = f.over_all_data()", "on[ALL] = f"),
    ("names on the wrong data", "zoo.py", "method + data: _written", "method + data[:0]: _written"),
    ("small lines taken for zero", "zoo.py", "size <= 1e-9 * scale", "size <= 0.3 * scale"),
    ("twins kept", "zoo.py", "if any(close) and not c.name:", "if False:"),
    ("named twins dropped", "zoo.py", "if any(close) and not c.name:", "if any(close):"),
    ("twins found too easily", "zoo.py", "> 1 - 1e-10", "> 0.9"),
    ("judged at the start", "zoo.py", "+ 0.1 * rng.uniform(-1, 1, q.D)", ""),
    ("lines not unsigned", "zoo.py", "for sign in (1, -1)", "for sign in (1,)"),
    ("closed form has noise from both", "zoo.py", 'both |= method != "CF" and', "both |="),
    ("all data have noise from both", "zoo.py", "and atom != whole", ""),
    (
        "drawn and all kept apart",
        "zoo.py",
        "given_eps[method, whole] =",
        "given_eps[method, atom] =",
    ),
    (
        "methods kept apart",
        "zoo.py",
        "given_i[atom] = given_i.get(atom",
        "given_i[method, atom] = given_i.get((method, atom)",
    ),
    (
        "signs lost in the span",
        "zoo.py",
        "line.parts.get(part, 0.0)",
        "abs(line.parts.get(part, 0.0))",
    ),
    ("expansions in x pass over the data", "zoo.py", 'self.approximation != "taylor_x" and ', ""),
    (
        "Miller without the prior",
        "zoo.py",
        "CF(taylor_z(f + p)) - RP1(taylor_z(f + p))",
        "CF(p) - RP1(p)",
    ),
]
