"""Doors to what others have: models of JAX, NumPyro and PyMC, ArviZ, Dask."""

from importlib import import_module
from typing import Any

from ..arguments import install


class Package:
    """A package that only adapters need, imported when something of it is asked for."""

    def __init__(self, name: str, title: str = "", extra: str = "") -> None:
        first = name.split(".")[0]
        self._name, self._title, self._extra = name, title or first, extra or first

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__version__":  # of tools, not of users
            raise AttributeError(attribute)
        try:
            module = import_module(self._name)
        except ImportError as error:
            raise ValueError(f"this needs {self._title}: {install(self._extra)}") from error
        return getattr(module, attribute)


def check_unknowns(name: str, discrete: dict[str, bool]) -> None:
    """{unknown: is it discrete}: there is one, and none is."""
    if not discrete:
        raise ValueError(f"{name} has no unknown: all that it samples is observed")
    for unknown in (k for k, is_so in discrete.items() if is_so):
        raise ValueError(
            f"{unknown} is discrete: only real unknowns have a slope; in the model sum over it"
        )
