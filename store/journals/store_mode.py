"""StoreMode: the backends that a store keeps, and the one that it reads."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import permutations

from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.installed_backends import backends_of, installed

_DOUBLE, _BESIDE = "double-write-", "+"


class StoreMode(str):
    """One backend, or two of which the first is read; each step leads to a neighbour.

    The text is the backend's name, ``file``, or ``double-write-`` and the name of the backend that
    is read, ``double-write-file``. If the two are not RocketMQ's default pair, ``+`` and the other
    name follow.
    """

    backends: tuple[str, ...]
    """The backends that are kept; the first one is read."""

    def __new__(cls, text: str) -> "StoreMode":
        """Parse a mode.

        Raises:
            ValueError: the mode is invalid; the error lists all valid ones.
        """
        states = _states()
        if text not in states:
            raise ValueError(f"invalid store state {text!r}: expected one of {', '.join(states)}")
        mode = super().__new__(cls, text)
        mode.backends = states[text]
        return mode

    @classmethod
    def of(cls, *backends: str) -> "StoreMode":
        """Return the mode that keeps these backends and reads the first."""
        return cls(_text(backends))

    @property
    def neighbours(self) -> list["StoreMode"]:
        """Return the modes that are one step away: one backend more or less, or the other one read.

        Ordered as ``store_modes``.
        """
        return [
            mode
            for mode in store_modes()
            if mode != self
            and (
                (
                    mode.backends[:1] == self.backends[:1]
                    and len(mode.backends) != len(self.backends)
                )
                or mode.backends == self.backends[::-1]
            )
        ]

    @property
    def reachable(self) -> list["StoreMode"]:
        """Return the neighbours, and the neighbours of those that keep the same backends.

        The second step can follow the first at once, without a second comparison.
        """
        alike = [mode for mode in self.neighbours if set(mode.backends) == set(self.backends)]
        beyond = {after for mode in alike for after in mode.neighbours} - {self}
        return [mode for mode in store_modes() if mode in beyond or mode in self.neighbours]

    def toward(self, goal: "StoreMode") -> "StoreMode":
        """Return the first step of a shortest path to ``goal``; each step is ``reachable``."""
        first = {mode: mode for mode in self.reachable}
        while goal not in first:
            further = {after: step for mode, step in first.items() for after in mode.reachable}
            first = further | first
        return first[goal]


def store_modes() -> list[StoreMode]:
    """Return every mode: for each pair of backends, from only one to only the other."""
    return [StoreMode(text) for text in _states()]


def _states() -> Mapping[str, tuple[str, ...]]:
    return _states_of(tuple(installed()))


@lru_cache(1)
def _states_of(names: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """Return text → backends of every mode, in an order in which no step leads back."""
    kept = sorted(
        [*permutations(names, 1), *permutations(names, 2)],
        key=lambda each: (names.index(each[0]), (len(each) == 1) == (each[0] != names[0])),
    )
    return {_text(each): each for each in kept}


def _text(backends: tuple[str, ...]) -> str:
    if len(backends) == 1:
        return backends[0]
    usual = backends_of(StoreConfig.model_fields["combine_cq_loading_cq_types"].default)
    beside = "" if sorted(backends) == usual else f"{_BESIDE}{backends[1]}"
    return f"{_DOUBLE}{backends[0]}{beside}"
