"""Many control variates at once: how to weigh them. NumPy alone."""
