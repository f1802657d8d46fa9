"""One object that knows when the work at hand has to end.

A pass over the data, a search or a compilation lies deep inside what a reader calls, and models of
the reader's own lie between. So whoever has a budget tells `deadline`, and whoever takes long asks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Late(Exception):
    """Work was cut off between two of its parts, since its time was over."""


class Deadline:
    """What is told by those who have a budget, and asked by those who take long."""

    def __init__(self) -> None:
        self._late: ContextVar[Callable[[], bool]] = ContextVar("late", default=lambda: False)
        self._ahead: ContextVar[float] = ContextVar("ahead", default=0.0)

    @contextmanager
    def until(self, late: Callable[[], bool] | None) -> Iterator[None]:
        """Inside `with deadline.until(late):` work ends with `Late` as soon as late() is true.

        Where one stands inside another, either may end it; inside `until(None)` nothing does.
        """
        outer = self._late.get()
        token = self._late.set((lambda: late() or outer()) if late else lambda: False)
        try:
            yield
        finally:
            self._late.reset(token)

    def passed(self, seconds: float = 0.0) -> bool:
        """Is it late, or will it be after so many seconds more?"""
        token = self._ahead.set(seconds)
        try:
            return self._late.get()()
        finally:
            self._ahead.reset(token)

    def check(self, seconds: float = 0.0) -> None:
        """Ends what it is called in with `Late`, if it is late, or will be."""
        if self.passed(seconds):
            raise Late("out of time")

    @property
    def ahead(self) -> float:
        """Seconds that a clock has to add while it is asked about later."""
        return self._ahead.get()


deadline = Deadline()
