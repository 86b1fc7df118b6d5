"""TFLite operators that are a function of each INT8 element: tables, and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.tflite_context import OpContext
from rlx_edge.formats.tflite_moves import Builder
from rlx_edge.ir import DType, QuantParams, Requant
from rlx_edge.ir.ops import Activation, ActivationFn, Clamp


@dataclass(frozen=True)
class Function:
    """A function that is a table on int8, the rules whose runtime has a kernel for it, and its output where that is
    fixed."""

    fn: ActivationFn
    rules: tuple[Requant, ...] = (Requant.TFLM, Requant.TFLITE_REF, Requant.TFLITE_UINT8)
    output: QuantParams | None = None


FUNCTIONS: Mapping[str, Function] = {
    "RELU": Function(ActivationFn.RELU),
    "LEAKY_RELU": Function(ActivationFn.LEAKY_RELU),
    "LOGISTIC": Function(ActivationFn.SIGMOID, output=QuantParams.per_tensor(1 / 256, -128)),
    "TANH": Function(ActivationFn.TANH, output=QuantParams.per_tensor(1 / 128, 0)),
    "HARD_SWISH": Function(ActivationFn.HARD_SWISH),
    "ABS": Function(ActivationFn.ABS, (Requant.TFLM, Requant.TFLITE_REF)),
    "ELU": Function(ActivationFn.ELU, (Requant.TFLM,)),
    "EXP": Function(ActivationFn.EXP, (Requant.TFLITE_REF,)),
    "GELU": Function(ActivationFn.GELU_APPROX, (Requant.TFLITE_REF, Requant.TFLITE_UINT8)),
}

CLAMPS: Mapping[str, Clamp] = {
    "RELU6": Clamp(0.0, 6.0),
    "RELU_N1_TO_1": Clamp(-1.0, 1.0),
    "RELU_0_TO_1": Clamp(0.0, 1.0),
}


def function(ctx: OpContext) -> int:
    """A table, worked out when the graph is lowered (reference/activation_tables.py)."""
    known, x, out = FUNCTIONS[ctx.operator.kind], ctx.input(0), ctx.output_quant()
    require_rule(ctx, known.rules)
    if known.output not in (None, out):
        wanted = f"1/{1 / known.output.scale:g}, {known.output.zero_point}" if known.output else ""
        raise UnsupportedError(f"an output of scale {out.scale:g} and zero point {out.zero_point} (not {wanted})")
    fn = known.fn
    if ctx.operator.kind == "GELU" and not ctx.option("Approximate"):
        raise UnsupportedError(
            "the exact form, whose int8 table depends on the C library; export with approximate=True"
        )
    alpha = slope(ctx) if fn is ActivationFn.LEAKY_RELU else None
    return ctx.add(Activation(fn, alpha, ctx.requant), (x,), out)


def slope(ctx: OpContext) -> float:
    alpha = float(ctx.option("Alpha"))
    if not 0 <= alpha < float("inf"):
        raise UnsupportedError(f"alpha = {alpha:g}")
    return alpha


def require_rule(ctx: OpContext, rules: tuple[Requant, ...]) -> None:
    """Raises UnsupportedError where the runtime behind the rule has no int8 kernel: there are no bits to keep to."""
    if ctx.requant not in (*rules, Requant.RLX):
        names = " or ".join(rule.value for rule in rules)
        raise UnsupportedError(f"rule {ctx.requant.value} has no int8 kernel for it; import with the rule {names}")


def _bounded(bounds: Clamp) -> Builder:
    """RELU6 and its kin bound the codes. With other parameters at the output, tflite-runtime requantizes first;
    tflite-micro takes no notice of them."""

    def build(ctx: OpContext) -> int:
        x, out = ctx.input(0), ctx.output_quant()
        if ctx.quant(x) == out:
            return ctx.add(bounds, (x,), out)
        if ctx.requant not in (Requant.TFLITE_REF, Requant.TFLITE_UINT8) or bounds.min != 0:
            raise UnsupportedError("operand and output have different quantization parameters")
        above = ctx.add_helper(Activation(ActivationFn.RELU, requant=ctx.requant), (x,), "relu", out)
        return ctx.add(bounds, (above,), out)

    return build


def _limited(from_below: bool) -> Builder:
    """MAXIMUM or MINIMUM with one constant, which compare codes: a bound. The exporter writes them."""

    def build(ctx: OpContext) -> int:
        x, out = ctx.input(0), ctx.output_quant()
        values, type = ctx.constant(1, "an int8 maximum or minimum of two tensors")
        if values.size != 1 or not ctx.quant(x) == type.quant == out:
            raise UnsupportedError("an int8 maximum or minimum with more than one number of the operand's parameters")
        low, high = DType.I8.limits
        codes = (int(values.flat[0]), high) if from_below else (low, int(values.flat[0]))
        return ctx.add(Clamp(*((code - out.zero_point) * out.scale for code in codes)), (x,), out)

    return build


INT8_FUNCTIONS: Mapping[str, Builder] = {
    **dict.fromkeys(FUNCTIONS, function),
    "MAXIMUM": _limited(from_below=True),
    "MINIMUM": _limited(from_below=False),
    **{kind: _bounded(bounds) for kind, bounds in CLAMPS.items()},
}
