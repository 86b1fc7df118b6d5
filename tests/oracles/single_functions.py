"""More random models of one int8 operator each: functions of one element, and operators that only move elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from oracles.single_ops import SINGLE_OPS, Build, Case, Draw
from oracles.single_slices import SINGLE_SLICES
from oracles.tflite_writer import OpSpec

TIES = (0.5, 1.0, 1.5, 2.5, 0.75, 0.25)
"""Ratios of scales at which results lie half way between two codes."""


def _function(
    kind: str, output: tuple[float, int] | None = None, options: str = "", alphas: bool = False, same: bool = False
) -> Callable[[], st.SearchStrategy[Case]]:
    """`output`: the only parameters that the runtimes take; `same`: those of the operand."""

    @st.composite
    def build(draw: Draw) -> Case:
        b = Build(draw)
        scale, zero = b.scale(1e-3, 0.1), b.zero_point()
        x = b.add_input(np.arange(-128, 128, dtype=np.int8), scale, zero)
        ratio = draw(st.sampled_from(TIES) | st.floats(0.3, 3.0))
        own = (scale, zero) if same else (float(np.float32(scale / ratio)), b.zero_point())
        y = b.output((256,), *(output or own))
        fields = {"Alpha": draw(st.sampled_from([0.0, 0.01, 0.25, 0.3, 1.5]))} if alphas else {}
        if kind == "GELU":
            fields = {"Approximate": 1}
        return b.case(OpSpec(kind, [x], [y], options, fields))

    return build


@st.composite
def multiply_at_ties(draw: Draw) -> Case:
    """MUL with scales for which results lie half way between two codes."""
    b = Build(draw)
    scales = b.scale(0.01, 1.0), b.scale(0.01, 1.0)
    a = b.add_input(np.arange(-128, 128, dtype=np.int8), scales[0], b.zero_point())
    k = b.constant("k", np.array([b.integer(-8, 8)], np.int8), "INT8", scales=scales[1:], zero_points=(0,))
    ratio = draw(st.sampled_from(TIES))
    y = b.output((256,), float(np.float32(scales[0] * scales[1] / ratio)), b.zero_point())
    return b.case(OpSpec("MUL", [a, k], [y], "MulOptions", {}))


@st.composite
def transpose(draw: Draw) -> Case:
    b = Build(draw)
    shape = tuple(b.integer(1, 4) for _ in range(b.integer(1, 4)))
    perm = draw(st.permutations(range(len(shape))))
    scale, zero = b.scale(), b.zero_point()
    operands = [b.input(shape, scale, zero), b.integers("perm", perm)]
    return b.case(OpSpec("TRANSPOSE", operands, [b.output([shape[i] for i in perm], scale, zero)]))


def _moved(kind: str, options: str, operands: str = "") -> Callable[[], st.SearchStrategy[Case]]:
    """An operator that takes [1, n, m] whole, to [n, m] or back."""

    @st.composite
    def build(draw: Draw) -> Case:
        b = Build(draw)
        shape = (b.integer(2, 4), b.integer(2, 4))
        scale, zero = b.scale(), b.zero_point()
        grows = kind == "EXPAND_DIMS"
        inputs = [b.input(shape if grows else (1, *shape), scale, zero)]
        out: tuple[int, ...] = (1, *shape) if grows else shape
        if operands == "axis":
            inputs.append(b.integers("axis", 0))
        return b.case(OpSpec(kind, inputs, [b.output(out, scale, zero)], options))

    return build


SINGLE_FUNCTIONS: Mapping[str, st.SearchStrategy[Case]] = {
    "LOGISTIC": _function("LOGISTIC", (1 / 256, -128))(),
    "TANH": _function("TANH", (1 / 128, 0))(),
    "HARD_SWISH": _function("HARD_SWISH", options="HardSwishOptions")(),
    "LEAKY_RELU": _function("LEAKY_RELU", options="LeakyReluOptions", alphas=True)(),
    "ABS": _function("ABS", options="AbsOptions")(),
    "ELU": _function("ELU")(),
    "EXP": _function("EXP", options="ExpOptions")(),
    "GELU": _function("GELU", options="GeluOptions")(),
    "RELU": _function("RELU")(),
    "RELU6": _function("RELU6", same=True)(),
    "RELU_N1_TO_1": _function("RELU_N1_TO_1", same=True)(),
    "RELU_0_TO_1": _function("RELU_0_TO_1", same=True)(),
    "RELU6 requantized": _function("RELU6")(),
    "MUL at ties": multiply_at_ties(),
    "TRANSPOSE": transpose(),
    "SQUEEZE": _moved("SQUEEZE", "SqueezeOptions")(),
    "EXPAND_DIMS": _moved("EXPAND_DIMS", "ExpandDimsOptions", "axis")(),
}
"""One strategy an operator; each draws a Case."""

ALL_OPS: Mapping[str, st.SearchStrategy[Case]] = {**SINGLE_OPS, **SINGLE_FUNCTIONS, **SINGLE_SLICES}


def examples(name: str) -> int:
    """How many examples a test draws: a quarter where each looks at all 256 codes, or only moves elements."""
    return settings().max_examples // (1 if name in SINGLE_OPS else 4)


NOT_IN_TFLITE_MICRO = ("EXP", "GELU", "TILE", "RELU_N1_TO_1", "RELU_0_TO_1", "RELU6 requantized")
"""Operators that tflite-micro lacks on int8, and one that it computes without the requantization."""

NOT_IN_TFLITE_RUNTIME = ("ELU",)
"""Operators that tflite-runtime's reference resolver lacks."""
