"""Climbing the ELBO: states and steps, the rules they follow, and exact references."""
