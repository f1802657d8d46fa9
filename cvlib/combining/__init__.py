"""Many control variates at once: moments, weights, the Bayesian rule. NumPy alone."""
