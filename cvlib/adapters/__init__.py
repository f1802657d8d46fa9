"""Doors to what others have: models of JAX, NumPyro and PyMC, and steps inside JAX."""
