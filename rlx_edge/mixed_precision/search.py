"""Which mix of bits keeps to the limits best: many are planned, the best of these are measured as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph
from rlx_edge.mixed_precision.mixes import Mixes, Planned
from rlx_edge.mixed_precision.points import Limits, Measured, Mix
from rlx_edge.quant.allocate import Option, curve, pareto

POINTS = 12
"""Mixes of each set of widths that are planned, evenly by flash."""

PLANS = 300
"""Changes of one layer or two are planned up to so many mixes in all: seconds, for 28 layers two minutes."""

FINALISTS = 4
"""Of the mixes that are planned, those of least summed error that are measured as a whole."""

ATTEMPTS = 2
"""To find finalists that fit when they are measured, too."""

MARGIN_DB = 1.0
"""Mixes whose sum says so much less SQNR than another's are taken to be worse as a whole, too."""

MEASURED = 12
"""Measured as a whole at most, with those of 8 and of 4 bits everywhere."""


@dataclass
class Search:
    """Mixes that are planned, of which some are measured, with their graphs."""

    mixes: Mixes
    make: Callable[[Mix], Graph]
    judge: Callable[[Graph], Measured]
    measured: dict[Mix, Measured] = field(default_factory=dict)
    graphs: dict[Mix, Graph] = field(default_factory=dict)

    def measure(self, mix: Mix) -> Measured:
        if mix not in self.measured:
            self.graphs[mix] = self.make(mix)
            self.measured[mix] = self.judge(self.graphs[mix])
        return self.measured[mix]

    @property
    def spent(self) -> bool:
        return len(self.measured) >= MEASURED

    def uniform(self, bits: int) -> Mix:
        return (bits,) * len(self.mixes.names)


def find(search: Search, limits: Limits) -> Mix:
    """The mix that keeps to the limits, measured. Raises EdgeError where none was found that does."""
    for bits in (8, 4):
        search.measure(search.uniform(bits))
    fronts = fronts_of(search.mixes)
    for front in fronts:
        for mix in _evenly(front):
            search.mixes.plan(mix)
    return within_flash(search, fronts, limits) if limits.flash_budget is not None else within_loss(search, limits)


def fronts_of(mixes: Mixes) -> list[list[Mix]]:
    """For each set of widths the mixes that no other beats in costs of layers and summed error, by rising flash."""
    found = []
    for count in range(1, len(mixes.widths) + 1):
        for widths in combinations(mixes.widths, count):
            layers = [
                [Option(bits, *mixes.layer_costs[node.name][bits], mixes.noise.added(node.id, bits)) for bits in widths]
                for node in mixes.noise.layers
            ]
            found.append([choice.bits for choice in curve(pareto(layers))])
    return found


def _evenly(front: Sequence[Mix]) -> list[Mix]:
    wanted = {round(i * (len(front) - 1) / (POINTS - 1)) for i in range(POINTS)}
    return [front[i] for i in sorted(wanted)]


def within_flash(search: Search, fronts: Sequence[Sequence[Mix]], limits: Limits) -> Mix:
    """The mix with the least measured error whose prediction as a whole keeps to the budget."""
    budget, mixes = limits.flash_budget, search.mixes
    assert budget is not None
    for front in fronts:  # the last of each that fits, by halving
        low, high = 0, len(front)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if mixes.plan(front[middle]).flash <= budget else (low, middle)
    # How much more a mix takes as a whole than planned: its weights are others, and so may be what is left out.
    over = 0
    for _ in range(ATTEMPTS):
        for planned in _finalists(mixes, budget - over):
            search.measure(planned.mix)
        if _best_within(search, budget) is not None:
            break
        over = max(m.flash - mixes.plan(mix).flash for mix, m in search.measured.items())
    else:
        search.measure(min(mixes.all, key=lambda p: p.flash).mix)
    chosen = _best_within(search, budget)
    if chosen is None:
        least = min(m.flash for m in search.measured.values())
        raise EdgeError(
            f"--flash-budget {budget:,}: the smallest choice of bits found takes {least:,} bytes on {limits.target}"
        )
    chosen = _improved(search, chosen, budget)
    found = search.measure(chosen)
    if limits.max_loss is not None and found.loss is not None and found.loss > limits.max_loss:
        raise EdgeError(
            f"--max-loss {limits.max_loss:g} within {budget:,} bytes cannot be met: the best choice of bits loses "
            f"{found.loss:.2f} points of {found.loss_of} ({found.sqnr_db:.1f} dB); try rlx-edge finetune"
        )
    return chosen


def _finalists(mixes: Mixes, budget: int) -> list[Planned]:
    """The mix with the least summed error that fits, improved until no change of one layer or two has less, and the
    next ones; without those of which another one that fits has as many bits in every layer."""
    fitting = [planned for planned in mixes.all if planned.flash <= budget]
    if not fitting:
        return []
    best = min(fitting, key=lambda p: p.noise)
    while (better := next((p for p in _near(mixes, best, best.noise) if p.flash <= budget), None)) is not None:
        best = better
    margin = (best.noise + mixes.noise.base) * 10 ** (MARGIN_DB / 10) - mixes.noise.base
    found = {p.mix: p for p in (*fitting, best, *_near(mixes, best, margin)) if p.flash <= budget}

    def least(mix: Mix) -> bool:
        return any(o != mix and all(a <= b for a, b in zip(mix, o, strict=True)) for o in found)

    return sorted((p for mix, p in found.items() if not least(mix)), key=lambda p: p.noise)[:FINALISTS]


def _near(mixes: Mixes, planned: Planned, error: float) -> Iterator[Planned]:
    """The mixes with other bits in one or two layers and less summed error than so much, least error first."""
    near = {mix for one in changes(planned.mix, mixes.widths) for mix in (one, *changes(one, mixes.widths))}
    errors = {mix: mixes.error(mix) for mix in near - {planned.mix}}
    for mix in sorted(errors, key=lambda mix: (errors[mix], mix)):
        if errors[mix] >= error or len(mixes.all) >= PLANS:
            return
        yield mixes.plan(mix)


def _best_within(search: Search, budget: int) -> Mix | None:
    found = {mix: m for mix, m in search.measured.items() if m.flash <= budget}
    return max(found, key=lambda mix: found[mix].sqnr_db, default=None)


def _improved(search: Search, chosen: Mix, budget: int) -> Mix:
    """Change single layers, those first that promise most, until none that fits is measured to have less error."""
    mixes = search.mixes
    while True:
        least = mixes.sqnr_db(mixes.error(chosen)) - MARGIN_DB
        near = [mixes.plan(mix) for mix in changes(chosen, mixes.widths) if mixes.sqnr_db(mixes.error(mix)) > least]
        left = [p for p in near if p.flash <= budget and p.mix not in search.measured]
        if not left or search.spent:
            return chosen
        search.measure(min(left, key=lambda p: p.noise).mix)
        best = _best_within(search, budget)
        assert best is not None
        chosen = best


def changes(mix: Mix, widths: Sequence[int]) -> Iterator[Mix]:
    """All mixes with other bits in one layer."""
    for place, old in enumerate(mix):
        for bits in widths:
            if bits != old:
                yield (*mix[:place], bits, *mix[place + 1 :])


def within_loss(search: Search, limits: Limits) -> Mix:
    """The smallest mix measured that loses little enough: by halving over the curve of those planned, then down that
    curve; losses do not fall evenly."""
    most = limits.max_loss
    assert most is not None

    def keeps(found: Measured) -> bool:
        return found.loss is not None and found.loss <= most

    points = curve_of(search.mixes.all)
    low, high = 0, len(points) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(search.measure(points[middle].mix)) else (middle + 1, high)
    last = search.measure(points[high].mix)
    while True:
        found = {mix: m for mix, m in search.measured.items() if keeps(m)}
        if not found:
            raise EdgeError(
                f"--max-loss {most:g}: with 8 bits everywhere the model already loses {last.loss or 0.0:.2f} points "
                f"of {last.loss_of}"
            )
        chosen = min(found, key=lambda mix: (found[mix].flash, -found[mix].sqnr_db))
        for mix in changes(chosen, search.mixes.widths):
            search.mixes.plan(mix)
        smaller = [p for p in search.mixes.all if p.flash < found[chosen].flash]
        left = [p for p in curve_of(smaller) if p.mix not in search.measured]
        if not left or search.spent:
            return chosen
        search.measure(left[-1].mix)


def curve_of(planned: Sequence[Planned]) -> list[Planned]:
    """By rising flash those with less summed error than all smaller ones."""
    kept: list[Planned] = []
    for one in sorted(planned, key=lambda p: (p.flash, p.noise)):
        if not kept or one.noise < kept[-1].noise:
            kept.append(one)
    return kept
