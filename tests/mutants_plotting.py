"""Plausible bugs of `cvlib.plotting`; harness.py says what the entries are."""

# fmt: off
MUTANTS = [
    ("ellipse angle of the minor axis", "ellipse", "np.arctan2(U[1, 1], U[0, 1])",
     "np.arctan2(U[1, 0], U[0, 0])", "ellipse_of_a_line"),
    ("ellipse of half the width", "ellipse",
     "Ellipse(mean, 2 * sd * s[1], 2 * sd * s[0], angle=angle, edgecolor=color, **kwargs)",
     "Ellipse(mean, sd * s[1], sd * s[0], angle=angle, edgecolor=color, **kwargs)",
     "ellipse_of_a_line"),
    ("ellipse of variances", "ellipse", "np.sqrt(np.maximum(s2, 0))", "np.maximum(s2, 0)",
     "ellipse_of_a_line"),
    ("one standard error", "error_band",
     "ax.fill_between(x, mean - 2 * error, mean + 2 * error, color=drawn.get_color(), "
     "alpha=0.2, lw=0)",
     "ax.fill_between(x, mean - error, mean + error, color=drawn.get_color(), alpha=0.2, lw=0)",
     "error_band"),
    ("mean for median in a band", "band", "np.median(runs, axis=0)", "np.mean(runs, axis=0) + 0.1",
     "band"),
    ("band of the quartiles", "band", "(0.1, 0.9)", "(0.25, 0.75)", "band"),
    ("label at the first point", "label_end", "(x[-1], y[-1])", "(x[0], y[0])", "label_end"),
    ("shift of a line lost", "line", "dx=dx", "", "a_line_of_ones_own"),
    ("label always the name", "line", "name if label is None else label", "name",
     "a_line_of_ones_own"),
    ("own colour overruled", "line", 'kwargs.setdefault("color", COLORS.get(name, GREY))',
     'kwargs["color"] = COLORS.get(name, GREY)', "a_line_of_ones_own"),
    ("a pale label", "BLUE", '"#256DE7", "#0B6F93", "#086324"', '"#256DE7", "#56B4E9", "#086324"',
     "colors"),
    ("ink by a threshold of a half", "ink", "1.05 * 0.05 > (luminance + 0.05) ** 2",
     "luminance < 0.5", "ink"),
]
