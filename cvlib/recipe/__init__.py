"""The language: terms, approximations, estimators, and how draws are made for them."""
