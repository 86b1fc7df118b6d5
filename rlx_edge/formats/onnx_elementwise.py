"""ONNX ops that work on each element alone."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import onnx

from rlx_edge.formats.onnx_node import Builder, OnnxNode, RefusedError
from rlx_edge.ir import Array, DType
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Cast, Clamp, CmpOp, Compare, Reshape, Where

FLOAT_MAX = float(np.finfo(np.float32).max)

DTYPES: dict[int, DType] = {
    onnx.TensorProto.FLOAT: DType.F32,
    onnx.TensorProto.INT8: DType.I8,
    onnx.TensorProto.UINT8: DType.U8,
    onnx.TensorProto.INT16: DType.I16,
    onnx.TensorProto.INT32: DType.I32,
    onnx.TensorProto.INT64: DType.I64,
    onnx.TensorProto.BOOL: DType.BOOL,
}
"""ONNX's element types that the IR has."""


def unary(fn: ActivationFn) -> Builder:
    return lambda node: node.result(Activation(fn), [node.operand(0)])


def whole(fn: ActivationFn) -> Builder:
    """Rounding, which leaves integers as they are."""

    def build(node: OnnxNode) -> int:
        return node.result(Activation(fn), [node.operand(0)]) if node.dtype(0) is DType.F32 else node.operand(0)

    return build


def binary(fn: BinaryOp) -> Builder:
    return lambda node: node.result(Binary(fn), [node.operand(0), node.operand(1)])


def variadic(fn: BinaryOp) -> Builder:
    """One op from the first operand to the last."""

    def build(node: OnnxNode) -> int:
        first, *rest = node.operands()
        if not rest:
            return node.result(Reshape(node.shape(0)), [first])
        for operand in rest[:-1]:
            first = node.step(Binary(fn), [first, operand], "partial")
        return node.result(Binary(fn), [first, rest[-1]])

    return build


def mean(node: OnnxNode) -> int:
    total, *rest = node.operands()
    for operand in rest:
        total = node.step(Binary(BinaryOp.ADD), [total, operand], "sum")
    return node.result(Binary(BinaryOp.MUL), [total, node.scalar("share", 1 / (1 + len(rest)))])


def compare(fn: CmpOp) -> Builder:
    return lambda node: node.result(Compare(fn), [node.operand(0), node.operand(1)])


def power(node: OnnxNode) -> int:
    """In the base's dtype; an exponent of another one is cast, or the base where the exponent is float."""
    base, exponent = node.operand(0), node.operand(1)
    kept, other = node.dtype(0), node.dtype(1)
    if kept == other:
        return node.result(Binary(BinaryOp.POW), [base, exponent])
    if other is not DType.F32:
        return node.result(Binary(BinaryOp.POW), [base, node.step(Cast(kept), [exponent], "exponent")])
    real = node.step(Binary(BinaryOp.POW), [node.step(Cast(other), [base], "base"), exponent], "power")
    return node.result(Cast(kept), [real])


def modulo(node: OnnxNode) -> int:
    """fmod=1 is C's fmod; without it, the result takes the divisor's sign."""
    a, b = node.operand(0), node.operand(1)
    dtype = node.dtype(0)
    if node.integer("fmod", 0) or dtype is DType.U8:
        return node.result(Binary(BinaryOp.MOD), [a, b])
    rest = node.step(Binary(BinaryOp.MOD), [a, b], "rest")
    zero = node.scalar("zero", 0, dtype)
    below = [node.step(Compare(CmpOp.LT), [value, zero], "below_zero") for value in (rest, b)]
    differ = node.step(Binary(BinaryOp.BIT_XOR), below, "signs_differ")
    some = node.step(Compare(CmpOp.NE), [rest, zero], "not_zero")
    moved = node.step(Binary(BinaryOp.BIT_AND), [differ, some], "moved")
    return node.result(Where(), [moved, node.step(Binary(BinaryOp.ADD), [rest, b], "other_side"), rest])


def bit_shift(node: OnnxNode) -> int:
    direction = node.text("direction", "")
    fn = {"LEFT": BinaryOp.SHL, "RIGHT": BinaryOp.SHR}.get(direction)
    if fn is None:
        raise RefusedError(f"attribute direction={direction!r} is not LEFT or RIGHT")
    return node.result(Binary(fn), [node.operand(0), node.operand(1)])


def invert(node: OnnxNode) -> int:
    """All bits the other way round: an exclusive or with ones."""
    dtype = node.dtype(0)
    ones = node.scalar("ones", {DType.BOOL: 1, DType.U8: 255}.get(dtype, -1), dtype)
    return node.result(Binary(BinaryOp.BIT_XOR), [node.operand(0), ones])


def where(node: OnnxNode) -> int:
    return node.result(Where(), [node.operand(0), node.operand(1), node.operand(2)])


def is_nan(node: OnnxNode) -> int:
    """Only NaN differs from itself."""
    return node.result(Compare(CmpOp.NE), [node.operand(0), node.operand(0)])


def is_infinite(node: OnnxNode) -> int:
    up, down = node.integer("detect_positive", 1) != 0, node.integer("detect_negative", 1) != 0
    x = node.operand(0)
    if up and down:
        size = node.step(Activation(ActivationFn.ABS), [x], "size")
        return node.result(Compare(CmpOp.EQ), [size, node.scalar("inf", math.inf)])
    if not up and not down:
        raise RefusedError("attributes detect_positive=0 and detect_negative=0 together are not supported")
    return node.result(Compare(CmpOp.EQ), [x, node.scalar("inf", math.inf if up else -math.inf)])


def cast(node: OnnxNode) -> int:
    node.without_effect("saturate", "round_mode")  # They say something of float8 only.
    to = node.integer("to", 0)
    if to not in DTYPES:
        known = to in onnx.TensorProto.DataType.values()
        raise RefusedError(f"attribute to={onnx.TensorProto.DataType.Name(to) if known else to} is not supported")
    return node.result(Cast(DTYPES[to]), [node.operand(0)])


def cast_like(node: OnnxNode) -> int:
    node.without_effect("saturate", "round_mode")
    return node.result(Cast(node.dtype(1)), [node.operand(0)])


def clip(node: OnnxNode) -> int:
    """Bounds are attributes up to opset 10, operands from 11 on; a bound that is left out does not bound."""
    if node.opset < 11:
        return _clamp(node, node.real("min", -FLOAT_MAX), node.real("max", FLOAT_MAX))
    bounds = [i for i in (1, 2) if node.given(i)]
    if node.dtype(0) is DType.F32 and all(node.known(i) is not None for i in bounds):
        low = node.number(1, "the bound min") if node.given(1) else -FLOAT_MAX
        return _clamp(node, low, node.number(2, "the bound max") if node.given(2) else FLOAT_MAX)
    if not bounds:
        return node.result(Reshape(node.shape(0)), [node.operand(0)])
    ops = {1: Binary(BinaryOp.MAX), 2: Binary(BinaryOp.MIN)}
    x = node.operand(0)
    for i in bounds[:-1]:
        x = node.step(ops[i], [x, node.operand(i)], "bounded")
    return node.result(ops[bounds[-1]], [x, node.operand(bounds[-1])])


def _clamp(node: OnnxNode, low: float, high: float) -> int:
    if low == 0.0 and high == FLOAT_MAX:
        return node.result(Activation(ActivationFn.RELU), [node.operand(0)])
    # ONNX lets the upper bound win where the two cross.
    return node.result(Clamp(min(low, high), high), [node.operand(0)])


def leaky_relu(node: OnnxNode) -> int:
    return node.result(Activation(ActivationFn.LEAKY_RELU, alpha=node.real("alpha", 0.01)), [node.operand(0)])


def prelu(node: OnnxNode) -> int:
    """LeakyRelu where one constant slope serves all; else max(x, 0) + slope * min(x, 0)."""
    x, slope = node.operand(0), node.known(1)
    if slope is not None and slope.dtype == np.float32 and slope.size and bool(np.all(slope == slope.flat[0])):
        return node.result(Activation(ActivationFn.LEAKY_RELU, alpha=float(slope.flat[0])), [x])
    zero = node.scalar("zero", 0.0, node.dtype(0))
    above = node.step(Binary(BinaryOp.MAX), [x, zero], "above")
    below = node.step(Binary(BinaryOp.MIN), [x, zero], "below")
    sloped = node.step(Binary(BinaryOp.MUL), [below, node.operand(1)], "sloped")
    return node.result(Binary(BinaryOp.ADD), [above, sloped])


def elu(node: OnnxNode) -> int:
    """max(x, 0) + alpha * min(Elu(x), 0), as the vocabulary's Elu has alpha 1."""
    alpha, x = node.real("alpha", 1.0), node.operand(0)
    if alpha == 1.0:
        return node.result(Activation(ActivationFn.ELU), [x])
    curve = node.step(Activation(ActivationFn.ELU), [x], "elu")
    below = node.step(Binary(BinaryOp.MIN), [curve, node.scalar("zero", 0.0)], "below")
    scaled = node.step(Binary(BinaryOp.MUL), [below, node.scalar("alpha", alpha)], "scaled")
    return node.result(Binary(BinaryOp.ADD), [node.step(Activation(ActivationFn.RELU), [x], "above"), scaled])


def hard_sigmoid(node: OnnxNode) -> int:
    """The vocabulary's HardSigmoid where the slope is 1/6, as PyTorch has it; else clamp(alpha * x + beta, 0, 1)."""
    alpha, beta, x = node.real("alpha", 0.2), node.real("beta", 0.5), node.operand(0)
    if np.float32(alpha) == np.float32(1 / 6) and beta == 0.5:
        return node.result(Activation(ActivationFn.HARD_SIGMOID), [x])
    scaled = node.step(Binary(BinaryOp.MUL), [x, node.scalar("alpha", alpha)], "scaled")
    line = node.step(Binary(BinaryOp.ADD), [scaled, node.scalar("beta", beta)], "line")
    return node.result(Clamp(0.0, 1.0), [line])


def gelu(node: OnnxNode) -> int:
    approximate = node.text("approximate", "none")
    fn = {"none": ActivationFn.GELU, "tanh": ActivationFn.GELU_APPROX}.get(approximate)
    if fn is None:
        raise RefusedError(f"attribute approximate={approximate!r} is not supported")
    return node.result(Activation(fn), [node.operand(0)])


def swish(node: OnnxNode) -> int:
    """x * sigmoid(alpha * x), which is Silu for alpha 1."""
    alpha, x = node.real("alpha", 1.0), node.operand(0)
    if alpha == 1.0:
        return node.result(Activation(ActivationFn.SILU), [x])
    scaled = node.step(Binary(BinaryOp.MUL), [x, node.scalar("alpha", alpha)], "scaled")
    gate = node.step(Activation(ActivationFn.SIGMOID), [scaled], "gate")
    return node.result(Binary(BinaryOp.MUL), [x, gate])


def _step(node: OnnxNode, fn: BinaryOp | ActivationFn, *operands: int | float) -> int:
    """One step of a formula: an op on nodes and on numbers."""
    ids = [node.scalar("number", value) if isinstance(value, float) else value for value in operands]
    op = Activation(fn) if isinstance(fn, ActivationFn) else Binary(fn)
    return node.step(op, ids, fn.value.lower())


def inverse_sine(node: OnnxNode, cosine: bool) -> int:
    """asin(x) = atan2(x, sqrt((1 - x) * (1 + x))); acos(x) with the two the other way round."""
    x, step = node.operand(0), partial(_step, node)
    product = step(BinaryOp.MUL, step(BinaryOp.SUB, 1.0, x), step(BinaryOp.ADD, 1.0, x))
    side = step(ActivationFn.SQRT, product)
    return node.result(Binary(BinaryOp.ATAN2), [side, x] if cosine else [x, side])


def hyperbolic(node: OnnxNode, cosine: bool) -> int:
    """sinh(x) = (e^x - e^-x) / 2, cosh(x) = (e^x + e^-x) / 2."""
    x, step = node.operand(0), partial(_step, node)
    up, down = step(ActivationFn.EXP, x), step(ActivationFn.EXP, step(ActivationFn.NEG, x))
    both = step(BinaryOp.ADD if cosine else BinaryOp.SUB, up, down)
    return node.result(Binary(BinaryOp.MUL), [both, node.scalar("half", 0.5)])


def inverse_hyperbolic(node: OnnxNode, cosine: bool) -> int:
    """asinh(x) = sign(x) * log(|x| + sqrt(x^2 + 1)), acosh(x) = log(x + sqrt(x^2 - 1))."""
    x, step = node.operand(0), partial(_step, node)
    root = step(ActivationFn.SQRT, step(BinaryOp.ADD, step(BinaryOp.MUL, x, x), -1.0 if cosine else 1.0))
    if cosine:
        return node.result(Activation(ActivationFn.LOG), [step(BinaryOp.ADD, x, root)])
    size = step(ActivationFn.LOG, step(BinaryOp.ADD, step(ActivationFn.ABS, x), root))
    return node.result(Binary(BinaryOp.MUL), [step(ActivationFn.SIGN, x), size])


def inverse_hyperbolic_tangent(node: OnnxNode) -> int:
    """atanh(x) = log((1 + x) / (1 - x)) / 2."""
    x, step = node.operand(0), partial(_step, node)
    ratio = step(BinaryOp.DIV, step(BinaryOp.ADD, 1.0, x), step(BinaryOp.SUB, 1.0, x))
    return node.result(Binary(BinaryOp.MUL), [step(ActivationFn.LOG, ratio), node.scalar("half", 0.5)])


def identity(node: OnnxNode) -> int:
    return node.operand(0)


def dropout(node: OnnxNode) -> list[int | None]:
    """The identity, outside of training; the mask then keeps everything."""
    node.without_effect("ratio", "seed")
    if node.given(2) and bool(node.number(2, "operand training_mode")):
        raise RefusedError("training_mode is on; export the model for inference")
    mask: Array = np.ones(node.shape(0), np.bool_)
    return [node.operand(0), node.values("mask", mask) if node.wants(1) else None]


OPS: dict[str, Builder] = {
    "Abs": unary(ActivationFn.ABS),
    "Acos": partial(inverse_sine, cosine=True),
    "Acosh": partial(inverse_hyperbolic, cosine=True),
    "Add": binary(BinaryOp.ADD),
    "And": binary(BinaryOp.BIT_AND),
    "Asin": partial(inverse_sine, cosine=False),
    "Asinh": partial(inverse_hyperbolic, cosine=False),
    "Atan": unary(ActivationFn.ATAN),
    "Atanh": inverse_hyperbolic_tangent,
    "BitShift": bit_shift,
    "BitwiseAnd": binary(BinaryOp.BIT_AND),
    "BitwiseNot": invert,
    "BitwiseOr": binary(BinaryOp.BIT_OR),
    "BitwiseXor": binary(BinaryOp.BIT_XOR),
    "Cast": cast,
    "CastLike": cast_like,
    "Ceil": whole(ActivationFn.CEIL),
    "Clip": clip,
    "Cos": unary(ActivationFn.COS),
    "Cosh": partial(hyperbolic, cosine=True),
    "Div": binary(BinaryOp.DIV),
    "Dropout": dropout,
    "Elu": elu,
    "Equal": compare(CmpOp.EQ),
    "Erf": unary(ActivationFn.ERF),
    "Exp": unary(ActivationFn.EXP),
    "Floor": whole(ActivationFn.FLOOR),
    "Gelu": gelu,
    "Greater": compare(CmpOp.GT),
    "GreaterOrEqual": compare(CmpOp.GE),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": unary(ActivationFn.HARD_SWISH),
    "Identity": identity,
    "IsInf": is_infinite,
    "IsNaN": is_nan,
    "LeakyRelu": leaky_relu,
    "Less": compare(CmpOp.LT),
    "LessOrEqual": compare(CmpOp.LE),
    "Log": unary(ActivationFn.LOG),
    "Max": variadic(BinaryOp.MAX),
    "Mean": mean,
    "Min": variadic(BinaryOp.MIN),
    "Mish": unary(ActivationFn.MISH),
    "Mod": modulo,
    "Mul": binary(BinaryOp.MUL),
    "Neg": unary(ActivationFn.NEG),
    "Not": invert,
    "Or": binary(BinaryOp.BIT_OR),
    "PRelu": prelu,
    "Pow": power,
    "Reciprocal": unary(ActivationFn.RECIP),
    "Relu": unary(ActivationFn.RELU),
    "Round": whole(ActivationFn.ROUND),
    "Sigmoid": unary(ActivationFn.SIGMOID),
    "Sign": unary(ActivationFn.SIGN),
    "Sin": unary(ActivationFn.SIN),
    "Sinh": partial(hyperbolic, cosine=False),
    "Softplus": unary(ActivationFn.SOFTPLUS),
    "Softsign": unary(ActivationFn.SOFTSIGN),
    "Sqrt": unary(ActivationFn.SQRT),
    "Sub": binary(BinaryOp.SUB),
    "Sum": variadic(BinaryOp.ADD),
    "Swish": swish,
    "Tan": unary(ActivationFn.TAN),
    "Tanh": unary(ActivationFn.TANH),
    "Where": where,
    "Xor": binary(BinaryOp.BIT_XOR),
}
