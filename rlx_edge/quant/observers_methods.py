"""The methods by name: what each needs to see of a tensor, and how it chooses the range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlx_edge.errors import EdgeError
from rlx_edge.ir import Array
from rlx_edge.quant.observers import MinMax, MovingAverage, Range, Seen
from rlx_edge.quant.observers_choose import PERCENTILE, Counts, entropy, mse, percentile
from rlx_edge.quant.observers_histogram import Histogram

BETTER_DB = 0.05
"""`auto` leaves a method for a later one of CANDIDATES where that gains more than this."""


class Observer:
    """What is kept of one tensor: extremes, and, where a method needs them, counts and a moving average."""

    def __init__(self, counts: bool = False, average: bool = False) -> None:
        self.extremes = MinMax()
        self.counts = Histogram() if counts else None
        self.average = MovingAverage() if average else None

    def update(self, values: Array, first: int, samples: int) -> bool:
        """Take in the values of that many samples, one after another, from sample number `first` on.

        False, and nothing kept, where they hold NaN or infinity.
        """
        if not self.extremes.update(values):
            return False
        if self.counts is not None:
            self.counts.update(values, self.extremes.seen.low, self.extremes.seen.high)
        if self.average is not None:
            self.average.update(values, first, samples)
        return True

    def merge(self, other: Observer) -> None:
        """Take in what another of the same kind has seen of other samples: as if this one had seen them."""
        self.extremes.merge(other.extremes)
        if self.counts is not None and other.counts is not None:
            self.counts.merge(other.counts)
        if self.average is not None and other.average is not None:
            self.average.merge(other.average)

    @property
    def seen(self) -> Seen:
        return self.extremes.seen

    def range(self, method: str) -> Range:
        """The range that a method chooses; that of the extremes where there are no counts."""
        seen = self.seen
        if self.counts is None or seen.low == seen.high:
            return Range(seen.low, seen.high)
        values = Counts.of(self.counts, self.seen)
        name, _, number = method.partition(":")
        percent = float(number) if number else PERCENTILE
        if name != "auto":
            return self._judged(values, name, percent)
        best = self._judged(values, CANDIDATES[0], percent)
        for other in CANDIDATES[1:]:
            found = self._judged(values, other, percent)
            assert found.sqnr_db is not None and best.sqnr_db is not None
            if found.sqnr_db > best.sqnr_db + BETTER_DB:
                best = found
        return best

    def candidates(self) -> tuple[Range, ...]:
        """The ranges of all CANDIDATES that differ from each other."""
        if self.counts is None or self.seen.low == self.seen.high:
            return (self.range("minmax"),)
        values = Counts.of(self.counts, self.seen)
        found: dict[tuple[float, float], Range] = {}
        for name in CANDIDATES:
            made = self._judged(values, name, PERCENTILE)
            found.setdefault((made.low, made.high), made)
        return tuple(found.values())

    def _judged(self, values: Counts, name: str, percent: float) -> Range:
        low, high = CHOOSE[name].choose(self, values, percent)
        return Range(low, high, name, values.outside(low, high), values.sqnr_db(low, high))


@dataclass(frozen=True)
class Method:
    """How a range is chosen, and what an Observer has to keep for that."""

    choose: Callable[[Observer, Counts, float], tuple[float, float]]
    counts: bool = True
    average: bool = False

    def observer(self) -> Observer:
        return Observer(self.counts, self.average)


def _minmax(observer: Observer, values: Counts, percent: float) -> tuple[float, float]:
    return observer.seen.low, observer.seen.high


def _moving_average(observer: Observer, values: Counts, percent: float) -> tuple[float, float]:
    assert observer.average is not None
    return observer.average.bounds


def _percentile(observer: Observer, values: Counts, percent: float) -> tuple[float, float]:
    return percentile(values, observer.seen.low, observer.seen.high, percent)


def _mse(observer: Observer, values: Counts, percent: float) -> tuple[float, float]:
    return mse(values, observer.seen.low, observer.seen.high)


def _entropy(observer: Observer, values: Counts, percent: float) -> tuple[float, float]:
    return entropy(values, observer.seen.low, observer.seen.high)


CHOOSE: Mapping[str, Method] = {
    "minmax": Method(_minmax, counts=False),
    "ema": Method(_moving_average, average=True),
    "percentile": Method(_percentile),
    "mse": Method(_mse),
    "entropy": Method(_entropy),
}

CANDIDATES = ("minmax", "percentile", "mse", "entropy")
"""Among which `auto` chooses."""

OBSERVERS = (*CHOOSE, "auto")
"""The names that `calibrate` takes; `percentile:99.9` sets the share of values, in percent, that stays inside."""


def method_of(name: str) -> Method:
    """What an observer's name asks for. Raises EdgeError, listing the names, for one that does not exist."""
    base, colon, number = name.partition(":")
    if base not in OBSERVERS or (colon and base != "percentile"):
        raise EdgeError(f"no observer {name!r}; there are {', '.join(OBSERVERS)}, and percentile:P such as 99.9")
    if colon:
        try:
            percent = float(number)
        except ValueError:
            percent = -1.0
        if not 50 <= percent <= 100:
            raise EdgeError(f"observer {name!r}: the percentage must be a number from 50 to 100")
    return CHOOSE.get(base, Method(_minmax))  # `auto` needs what CANDIDATES need: counts.
