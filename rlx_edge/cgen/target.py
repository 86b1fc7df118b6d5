"""What a target can run: op kinds, dtypes, rounding rules, conditions. Quoted in the errors of legalize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from rlx_edge.cgen import checks
from rlx_edge.errors import EdgeError
from rlx_edge.ir import DType, Graph, Node, Requant
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    Clamp,
    Concat,
    Dequantize,
    DequantMatMul,
    Expand,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Softmax,
    Transpose,
)
from rlx_edge.ir.ops.control import Custom

Check = Callable[[Graph, Node], str | None]

INTEGER_RULES = (Requant.TFLM, Requant.TFLITE_REF, Requant.TFLITE_UINT8, Requant.ONNX)


class Isa(Enum):
    """Instruction sets that kernels are written for (firmware/kernels)."""

    PORTABLE = "portable"
    V6M = "v6m"
    V7M = "v7m"
    DSP = "dsp"
    MVE = "mve"


@dataclass(frozen=True)
class Support:
    """What a target runs of one op kind: dtypes of its first operand, rounding rules, and further conditions."""

    checks: tuple[Check, ...]
    dtypes: tuple[DType, ...] = (DType.I8,)
    rules: tuple[Requant, ...] | None = None


@dataclass(frozen=True)
class TargetConfig:
    """A processor that code is generated for.

    `requires` is the compiler's macro that must be defined when the code is compiled for an Arm core, so that a bundle
    made for one core is not built for another by mistake; the host is always allowed. `isas`: what it runs.
    """

    name: str
    description: str
    requires: str | None
    ops: Mapping[type[Op], Support]
    isas: tuple[Isa, ...] = (Isa.PORTABLE,)


_WINDOW = (checks.channels_last, checks.computed_operands, checks.per_tensor)
_WEIGHTED = (checks.channels_last, checks.computed_input, checks.constant_weights, checks.per_tensor)
_MOVING = (checks.computed_operands, checks.same_parameters, checks.per_tensor)

PORTABLE_OPS: Mapping[type[Op], Support] = {
    QConv2d: Support(_WEIGHTED, rules=INTEGER_RULES),
    QMatMul: Support(_WEIGHTED, rules=INTEGER_RULES),
    DequantMatMul: Support((checks.stored_scheme, checks.computed_input, checks.constant_weights), (DType.F32,)),
    Pool: Support((*_WINDOW, checks.mean_or_max, checks.pool_parameters), rules=INTEGER_RULES),
    Binary: Support((checks.some_computed_operand, checks.per_tensor), rules=INTEGER_RULES),
    Reduce: Support((checks.computed_operands, checks.per_tensor, checks.mean), rules=INTEGER_RULES),
    Softmax: Support((checks.computed_operands, checks.per_tensor, checks.last_axis), rules=INTEGER_RULES),
    Quantize: Support((checks.computed_operands, checks.per_tensor), (DType.I8, DType.F32), INTEGER_RULES),
    Dequantize: Support((checks.computed_operands, checks.per_tensor)),
    Activation: Support((checks.computed_operands, checks.per_tensor, checks.table)),
    Clamp: Support(_MOVING),
    Reshape: Support(_MOVING, (DType.I8, DType.F32)),
    Transpose: Support(_MOVING),
    Narrow: Support(_MOVING),
    Slice: Support(_MOVING),
    Expand: Support(_MOVING),
    Reverse: Support(_MOVING),
    Pad: Support((*_MOVING, checks.no_batch_padding)),
    Concat: Support(_MOVING),
    Custom: Support((checks.registered_kernel, checks.some_computed_operand, checks.per_tensor)),
}
"""The portable C kernels."""

_V6M = (Isa.V6M, Isa.PORTABLE)
_V7M = (Isa.V7M, Isa.PORTABLE)
_DSP = (Isa.DSP, Isa.V7M, Isa.PORTABLE)
_MVE = (Isa.MVE, Isa.DSP, Isa.V7M, Isa.PORTABLE)

TARGETS: Mapping[str, TargetConfig] = {
    config.name: config
    for config in (
        TargetConfig("portable", "any 32-bit core, C11", None, PORTABLE_OPS),
        TargetConfig("cortex-m0", "Armv6-M", "__ARM_ARCH_6M__", PORTABLE_OPS, _V6M),
        TargetConfig("cortex-m0plus", "Armv6-M", "__ARM_ARCH_6M__", PORTABLE_OPS, _V6M),
        TargetConfig("cortex-m3", "Armv7-M", "__ARM_ARCH_7M__", PORTABLE_OPS, _V7M),
        TargetConfig("cortex-m4", "Armv7E-M", "__ARM_ARCH_7EM__", PORTABLE_OPS, _DSP),
        TargetConfig("cortex-m7", "Armv7E-M", "__ARM_ARCH_7EM__", PORTABLE_OPS, _DSP),
        TargetConfig("cortex-m33", "Armv8-M Mainline with DSP", "__ARM_FEATURE_DSP", PORTABLE_OPS, _DSP),
        TargetConfig("cortex-m55", "Armv8.1-M Mainline with MVE", "__ARM_FEATURE_MVE", PORTABLE_OPS, _MVE),
    )
}


def get_target(name: str) -> TargetConfig:
    """The target of that name. Raises EdgeError listing the names that exist."""
    if name not in TARGETS:
        raise EdgeError(f"no target {name!r}; there are {', '.join(TARGETS)}")
    return TARGETS[name]
