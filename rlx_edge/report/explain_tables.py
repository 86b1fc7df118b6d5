"""An explanation as tables and lines for the terminal."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from rlx_edge.coverage import percent
from rlx_edge.quant.explain import Explanation, Sensitivity
from rlx_edge.report.tables import counted, short, table

FLOAT_LIMIT_DB = 150
"""Beyond it, only float32's own rounding is left."""

NARROWEST_NAME = 12
"""Of the table with the most columns, which fits 80 characters."""

SHOWN = 10
"""Layers that the sensitivity table lists."""


def show(explanation: Explanation, out: Console) -> None:
    """All tables, and the figures of the whole model."""
    out.print(tensors_table(explanation))
    out.print(layers_table(explanation))
    if explanation.sensitivity:
        out.print(sensitivity_table(explanation))
    out.print(explanation_text(explanation), markup=False, soft_wrap=True)


def tensors_table(explanation: Explanation) -> Table:
    """Per tensor: the range and how it was chosen, what the codes mean, what they clip, and the SQNR."""
    rows = [
        (
            short(t.name),
            f"{t.low:.3g}..{t.high:.3g}",
            short(t.method),
            f"{t.scale:.4g}",
            t.zero_point,
            percent(t.clipped),
            decibels(t.sqnr_db),
        )
        for t in explanation.tensors
    ]
    columns = ("tensor", "range", "method", "scale", "zero", "clipped", "dB")
    return table("int8 beside float, per tensor: SQNR in dB", columns, rows, narrowest=NARROWEST_NAME)


def layers_table(explanation: Explanation) -> Table:
    """Per layer: bits of its weights, SQNR with the errors of all layers before it, and alone on float inputs."""
    rows = [
        (short(x.name), short(x.op), str(x.weight_bits or ""), decibels(x.sqnr_db), decibels(x.isolated_db))
        for x in explanation.layers
    ]
    return table("per layer", ("layer", "op", "bits", "SQNR dB, accumulated", "alone"), rows)


def sensitivity_table(explanation: Explanation) -> Table:
    """What the output gains if one layer alone stays float, the greatest gain first."""
    found = explanation.sensitivity[:SHOWN]
    columns: list[str] = ["layer", "output SQNR, dB"]
    with_agreement = any(s.gain_agreement is not None for s in found)
    with_top1 = any(s.gain_top1 is not None for s in found)
    columns += ["agreement, points"] * with_agreement + ["top-1, points"] * with_top1
    rows = [(short(s.name), f"{s.gain_db:+.2f}", *_shares(s, with_agreement, with_top1)) for s in found]
    where = f"on {counted(explanation.sensitivity_samples, 'sample')}"
    rest = len(explanation.sensitivity) - len(found)
    more = f"; the {counted(rest, 'layer')} that gain least are left out" if rest else ""
    return table(f"gain if this layer alone stays float, {where}{more}", columns, rows)


def _shares(found: Sensitivity, with_agreement: bool, with_top1: bool) -> list[str]:
    gains = [found.gain_agreement] * with_agreement + [found.gain_top1] * with_top1
    return ["" if gain is None else f"{100 * gain:+.1f}" for gain in gains]


def explanation_text(explanation: Explanation) -> str:
    """The figures of the whole model in one line."""
    agreement = "" if explanation.agreement is None else f", agreement {explanation.agreement:.1%}"
    top1 = "" if explanation.top1 is None else f", top-1 {explanation.top1[1]:.1%} (float {explanation.top1[0]:.1%})"
    samples = counted(explanation.samples, "sample")
    return f"output SQNR {decibels(explanation.output_sqnr_db)} dB{agreement}{top1} over {samples}"


def decibels(value: float) -> str:
    """A figure in dB; `exact` where there is no error at all."""
    return "exact" if value == math.inf else f"{value:.1f}" if value < FLOAT_LIMIT_DB else f">{FLOAT_LIMIT_DB}"
