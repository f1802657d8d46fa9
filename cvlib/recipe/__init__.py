"""The language: terms, approximations, estimators, and the draws that they look at."""
