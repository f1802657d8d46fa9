"""The front door: from a model to its best q in one call."""
