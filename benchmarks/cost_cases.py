"""Layers of many shapes, small and real ones, for the fit of the cost model: an int8 graph a family of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, QuantParams, Requant, TensorType, real_multipliers
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Dequantize,
    DequantMatMul,
    Layout,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    QuantScheme,
    Reduce,
    ReduceOp,
    Reshape,
    SchemeKind,
    Softmax,
    Transpose,
)
from rlx_edge.passes.freeze import freeze

INPUT_BYTES = 40_960
X_QUANT, OUT_QUANT = QuantParams.per_tensor(0.05, -3), QuantParams.per_tensor(0.1, 5)
TANH = QuantParams.per_tensor(1 / 128, 0)
PROBABILITIES = QuantParams.per_tensor(1 / 256, -128)
SPREADS: Mapping[DType, tuple[float, float]] = {DType.I8: (20, 40), DType.I4: (2, 3), DType.I2: (0.5, 0.8)}
"""Standard deviations of weights."""
PACKED: Mapping[str, DType] = {"w4": DType.I4, "w2": DType.I2}
"""By the last word of the names of families and variants: weights of 4 and of 2 bits."""


class Cases:
    """Collects layers whose inputs are all cut out of one input tensor, so that one load over the link serves all."""

    def __init__(
        self, name: str, rule: Requant = Requant.TFLM, dtype: DType = DType.I8, weights: DType = DType.I8
    ) -> None:
        self.builder = GraphBuilder(name)
        self.rng = np.random.default_rng(2026)
        self.rule = rule
        self._weights = weights
        quant = X_QUANT if dtype is DType.I8 else None
        self._size = INPUT_BYTES if dtype is DType.I8 else INPUT_BYTES // 8
        self._x = self.builder.input("x", TensorType((self._size,), dtype, quant))
        self._quant = quant
        self.made: list[int] = []
        self._asked = 0

    def tensor(self, *shape: int, quant: QuantParams | None = None) -> int:
        """An input of this shape, from a random place of the input tensor; `quant` where it is not X_QUANT."""
        size = int(np.prod(shape))
        start = int(self.rng.integers(0, (self._size - size) // 16 + 1)) * 16
        cut = self.builder.add(Narrow(0, start, size), [self._x], "cut", self._quant)
        return self.builder.add(Reshape(shape), [cut], "shaped", quant or self._quant)

    def add(self, op: Op, operands: list[int], quant: QuantParams | None = OUT_QUANT) -> None:
        self._asked += 1
        if self.rule is Requant.ONNX and self._asked % 2 == 0:
            return  # its kernels have the loops of the others: half of the shapes will do
        self.made.append(self.builder.add(op, operands, "layer", quant))

    @property
    def zero_points(self) -> bool:
        """Whether weights may have zero points: as of uint8 models."""
        return self._weights is DType.I8

    def weights(self, shape: tuple[int, ...], channels: int | None, zero: int = 0) -> tuple[int, QuantParams]:
        taps = int(np.prod(shape)) // shape[0 if channels else 1]
        base = 0.02 / np.sqrt(taps)
        if channels is None:
            quant = QuantParams.per_tensor(float(np.float32(base)), zero)
        else:
            scales = (base * (1.0 + self.rng.random(channels))).astype(np.float32)
            quant = QuantParams(tuple(map(float, scales)), (zero,) * channels, 0)
        return self.builder.param("w", self._values(shape), quant, dtype=self._weights), quant

    def _values(self, shape: tuple[int, ...]) -> Array:
        """Spread evenly, or as those of trained layers: what some kernels do depends on how large weights are."""
        largest = self._weights.limits[1]
        if self._asked % 3 == 0:
            return self.rng.integers(-largest, largest + 1, shape).astype(np.int8)
        spread = SPREADS[self._weights][self._asked % 2]
        return np.asarray(self.rng.normal(0, spread, shape).round().clip(-largest, largest).astype(np.int8))

    def bias(self, channels: int) -> int:
        return self.builder.param("b", self.rng.integers(-2000, 2001, channels).astype(np.int32))

    def graph(self) -> Graph:
        return freeze(self.builder.build([self.made[-1]]))


def _same(size: tuple[int, int], kernel: tuple[int, int], stride: int) -> tuple[int, int, int, int]:
    total = [max(0, (-(-s // stride) - 1) * stride + k - s) for s, k in zip(size, kernel, strict=True)]
    top, left = total[0] // 2, total[1] // 2
    return top, left, total[0] - top, total[1] - left


def _window(cases: Cases, text: str, depthwise: bool = False, w_zp: int = 0) -> None:
    """ "HxWxC K_HxK_W stride out_c [valid] [relu] [groups=2] [dilation=2]" """
    shape, window, stride_text, out_text, *rest = text.split()
    h, w, c = map(int, shape.split("x"))
    k_h, k_w = map(int, window.split("x"))
    stride, out_c = int(stride_text), int(out_text)
    more = dict(part.split("=") for part in rest if "=" in part)
    groups, dilation = c if depthwise else int(more.get("groups", 1)), int(more.get("dilation", 1))
    pads = (
        (0, 0, 0, 0) if "valid" in rest else _same((h, w), ((k_h - 1) * dilation + 1, (k_w - 1) * dilation + 1), stride)
    )
    weights, quant = cases.weights((out_c, k_h, k_w, c // groups), out_c, w_zp)
    op = QConv2d(
        *((k_h, k_w), (stride, stride), pads, (dilation, dilation), groups),
        *(X_QUANT.zero_point, w_zp, OUT_QUANT.zero_point, real_multipliers(X_QUANT, quant, OUT_QUANT)),
        *(Layout.NHWC, cases.rule, (OUT_QUANT.zero_point, 127) if "relu" in rest else None),
    )
    cases.add(op, [cases.tensor(1, h, w, c), weights, cases.bias(out_c)])


CONV = """
25x5x64 1x1 1 64 | 49x10x1 10x4 2 64 | 32x32x3 3x3 1 16 | 32x32x16 3x3 1 16 | 32x32x16 3x3 2 32 | 16x16x32 3x3 1 32
16x16x32 3x3 2 64 | 8x8x64 3x3 1 64 | 32x32x16 1x1 2 32 | 16x16x32 1x1 2 64 | 96x96x3 3x3 2 8 | 48x48x8 1x1 1 16
24x24x16 1x1 1 32 | 24x24x32 1x1 1 32 | 12x12x32 1x1 1 64 | 6x6x64 1x1 1 128 | 3x3x128 1x1 1 256 | 3x3x256 1x1 1 256
5x5x3 3x3 1 5 | 7x6x7 1x1 1 22 | 4x9x5 2x2 1 9 | 9x9x3 5x1 1 3 | 9x9x6 1x3 1 6 | 12x12x13 1x1 1 17 | 6x6x10 3x3 1 11
1x1x4 1x1 1 4 | 2x2x1 1x1 1 1 | 1x1x1 1x1 1 1 | 8x8x1 3x3 1 8 | 8x8x8 3x3 1 16 | 4x4x16 3x3 1 10 | 10x10x22 1x1 1 7
8x8x4 5x5 1 8 | 10x10x3 3x3 1 8 valid | 12x12x5 3x3 2 6 valid | 6x6x16 1x1 1 1 | 6x6x1 1x1 1 16 | 5x1x32 1x1 1 12
14x14x6 3x3 2 4 | 3x17x9 3x3 1 13 | 20x20x2 3x3 1 2 | 6x6x3 1x1 1 3 | 11x3x20 1x1 1 18 | 7x7x24 3x3 2 20
"""
CONV_PORTABLE = """
8x8x8 3x3 1 8 groups=2 | 6x6x12 3x3 1 12 groups=3 | 8x8x6 3x3 1 9 dilation=2 | 9x7x4 3x3 1 6 groups=2 dilation=2
8x8x10 1x1 1 10 groups=5
"""
DEPTHWISE = """
25x5x64 3x3 1 64 | 48x48x8 3x3 1 8 | 48x48x16 3x3 2 16 | 24x24x32 3x3 1 32 | 24x24x32 3x3 2 32 | 12x12x64 3x3 1 64
12x12x64 3x3 2 64 | 6x6x128 3x3 1 128 | 6x6x128 3x3 2 128 | 3x3x256 3x3 1 256 | 5x5x3 3x3 1 3 | 7x6x7 3x3 1 7
9x9x5 3x3 2 5 | 8x8x22 3x3 1 22 | 8x8x13 3x3 2 13 | 6x6x4 5x5 1 4 | 6x6x9 2x2 1 9 | 9x4x6 1x3 1 6 | 9x4x6 3x1 1 6
4x4x2 1x1 1 2 | 3x3x4 3x3 1 4 | 1x1x4 3x3 1 4 | 10x10x8 3x3 1 8 valid | 11x11x12 3x3 2 12 valid | 4x20x17 3x3 1 17
20x4x19 3x3 1 19 | 6x6x3 3x3 1 6 | 5x5x4 3x3 1 8 | 8x8x16 3x3 1 16 | 2x2x24 3x3 1 24 | 30x3x4 3x3 1 4 | 3x30x4 3x3 2 4
"""
DENSE = """
1x640 128 | 1x128 128 | 1x128 8 | 1x8 128 | 1x128 640 | 1x64 12 | 1x64 10 | 1x256 2 | 1x12 5 | 1x3 3 | 1x1 1 | 1x5 9
1x31 7 | 1x33 17 | 4x16 16 | 3x20 6 | 7x9 4 | 2x64 32 | 1x100 50 | 1x16 1 | 1x1 16 | 5x7 3 | 1x255 3 | 1x18 22
1x144 10 | 1x392 10 | 1x512 4 | 1x4 4 | 1x6 2 | 1x10 64
"""


def _entries(text: str) -> list[str]:
    return [entry.strip() for line in text.strip().splitlines() for entry in line.split("|")]


def conv(cases: Cases) -> None:
    for entry in _entries(CONV) + _entries(CONV_PORTABLE):
        _window(cases, entry)
    for entry in _entries(CONV):  # MVE has a kernel for these
        _window(cases, f"{entry} relu")
    for entry in _entries(CONV)[-8:] if cases.zero_points else []:
        _window(cases, entry, w_zp=3)


def depthwise(cases: Cases) -> None:
    for entry in _entries(DEPTHWISE):
        _window(cases, entry, depthwise=True)


def dense(cases: Cases) -> None:
    entries = _entries(DENSE)
    for index, entry in enumerate(entries + (entries[-9:] if cases.zero_points else [])):
        w_zp = 0 if index < len(entries) else 3
        shape, out_text = entry.split()
        rows, in_c = map(int, shape.split("x"))
        out_c = int(out_text)
        weights, quant = cases.weights((in_c, out_c), None, w_zp)
        mult = real_multipliers(X_QUANT, quant, OUT_QUANT)
        op = QMatMul(X_QUANT.zero_point, w_zp, OUT_QUANT.zero_point, mult, cases.rule, None)
        cases.add(op, [cases.tensor(rows, in_c), weights, cases.bias(out_c)])


IN_BLOCKS = (
    (1, 64, 32, 16),
    (1, 33, 10, 33),
    (3, 40, 7, 8),
    (1, 256, 12, 32),
    (2, 20, 4, 4),
    (1, 7, 1, 7),
    (1, 128, 16, 64),
)
"""Rows, K, N and the size of a block."""


def dequant_matmul(cases: Cases) -> None:
    for rows, k, n, block in IN_BLOCKS:
        for kind, dtype in ((SchemeKind.INT8_BLOCK_ASYM, DType.I8), (SchemeKind.INT4_BLOCK, DType.I4)):
            for zero, has_bias in ((0.0, True), (0.5, False)):
                codes = cases.rng.integers(*dtype.limits, (k, n), endpoint=True).astype(np.int8)
                scales = cases.rng.uniform(0.01, 0.02, (-(-k // block), n)).astype(np.float32)
                operands = [
                    cases.tensor(rows, k),
                    cases.builder.param("w", codes, dtype=dtype),
                    cases.builder.param("s", scales),
                    cases.builder.param("z", np.full_like(scales, zero)),
                ]
                operands += [cases.builder.param("b", np.ones(n, np.float32))] if has_bias else []
                cases.add(DequantMatMul(QuantScheme(kind, block)), operands, None)


PLANES = ((32, 32, 16), (16, 16, 32), (8, 8, 64), (25, 5, 64), (5, 7, 3), (3, 4, 1), (1, 1, 10), (2, 9, 13), (6, 6, 22))


def binary(fn: BinaryOp) -> Callable[[Cases], None]:
    def add(cases: Cases) -> None:
        for h, w, c in PLANES:
            x = cases.tensor(1, h, w, c)
            cases.add(Binary(fn, cases.rule), [x, cases.tensor(1, h, w, c)], QuantParams.per_tensor(0.12, 3))
        for h, w, c in PLANES:
            other = cases.tensor(1, h, w, c, quant=QuantParams.per_tensor(0.013, 9))
            cases.add(Binary(fn, cases.rule), [cases.tensor(1, h, w, c), other], QuantParams.per_tensor(0.12, 3))
        for h, w, c in PLANES[3:]:
            x = cases.tensor(1, h, w, c)
            cases.add(Binary(fn, cases.rule), [x, cases.tensor(1, 1, 1, c)], QuantParams.per_tensor(0.12, 3))

    return add


def pool(kind: ReduceOp) -> Callable[[Cases], None]:
    def add(cases: Cases) -> None:
        shapes = [(h, w, c, k, s) for h, w, c in PLANES for k, s in ((2, 2), (3, 1), (3, 2)) if min(h, w) >= k]
        shapes += [(24, 4, 64, 4, 4), (8, 8, 64, 8, 8), (5, 5, 5, 5, 5), (6, 6, 22, 1, 1), (12, 12, 3, 4, 3)]
        for index, (h, w, c, k, s) in enumerate(shapes):
            padding = (k // 2, k // 2) if index % 2 else (0, 0)
            op = Pool(kind, (k, k), (s, s), padding, Layout.NHWC, requant=cases.rule)
            cases.add(op, [cases.tensor(1, h, w, c)], X_QUANT)
        for h, w, c in (*PLANES, (3, 3, 256), (12, 12, 16), (4, 20, 7), (25, 5, 22)):
            op = Pool(kind, (h, w), (h, w), (0, 0), Layout.NHWC, requant=cases.rule)
            cases.add(op, [cases.tensor(1, h, w, c)], X_QUANT)

    return add


def mean(cases: Cases) -> None:
    for axes in ((1, 2), (1,), (2,), (3,)):
        for h, w, c in PLANES:
            cases.add(Reduce(ReduceOp.MEAN, axes, False, cases.rule), [cases.tensor(1, h, w, c)])


WIDTHS = ((1, 10), (1, 12), (1, 2), (1, 1), (1, 64), (1, 255), (4, 10), (20, 3), (7, 33), (1, 1000), (60, 60), (2, 17))


def softmax(cases: Cases) -> None:
    for rows, width in WIDTHS:
        cases.add(Softmax(-1, requant=cases.rule), [cases.tensor(rows, width)], PROBABILITIES)


def elementwise(make: Callable[[Cases], tuple[object, QuantParams | None]]) -> Callable[[Cases], None]:
    def add(cases: Cases) -> None:
        for rows, width in WIDTHS:
            op, quant = make(cases)
            if width < 1000 or rows == 1:
                cases.add(op, [cases.tensor(rows, width)], quant)

    return add


def _requantize(cases: Cases) -> tuple[object, QuantParams | None]:
    return Quantize.to(OUT_QUANT, cases.rule), OUT_QUANT


def _quantize(cases: Cases) -> tuple[object, QuantParams | None]:
    return Quantize.to(X_QUANT, cases.rule), X_QUANT


def pad(cases: Cases) -> None:
    for h, w, c in PLANES:
        for pads in (
            ((0, 0), (1, 1), (1, 1), (0, 0)),
            ((0, 0), (0, 1), (0, 1), (0, 0)),
            ((0, 0), (1, 0), (0, 0), (0, 3)),
        ):
            cases.add(Pad(pads), [cases.tensor(1, h, w, c)], X_QUANT)


def transpose(cases: Cases) -> None:
    for h, w, c in PLANES:
        for perm in ((0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3)):
            cases.add(Transpose(perm), [cases.tensor(1, h, w, c)], X_QUANT)


def concat(cases: Cases) -> None:
    for h, w, c in PLANES:
        for axis in (1, 2, 3):
            cases.add(Concat(axis), [cases.tensor(1, h, w, c), cases.tensor(1, h, w, c)], X_QUANT)


Fill = Callable[[Cases], None]

_RULED: Mapping[str, Fill] = {
    "conv": conv,
    "depthwise": depthwise,
    "dense": dense,
    "add": binary(BinaryOp.ADD),
    "sub": binary(BinaryOp.SUB),
    "mul": binary(BinaryOp.MUL),
    "avg_pool": pool(ReduceOp.MEAN),
    "mean": mean,
    "softmax": softmax,
}
_PLAIN: Mapping[str, Fill] = {
    "max_pool": pool(ReduceOp.MAX),
    "requantize": elementwise(_requantize),
    "lookup": elementwise(lambda cases: (Activation(ActivationFn.TANH, requant=cases.rule), TANH)),
    "clamp": elementwise(lambda cases: (Clamp(-1.0, 2.0), X_QUANT)),
    "dequantize": elementwise(lambda cases: (Dequantize.of(X_QUANT), None)),
    "pad": pad,
    "transpose": transpose,
    "concat": concat,
}


def families() -> dict[str, Callable[[], Graph]]:
    """By name, what makes the frozen graph of a family; its layers are those nodes that are not Narrow or Reshape."""
    found: dict[str, tuple[Fill, Requant, DType, DType]] = {}
    for name, fill in {**_RULED, **_PLAIN}.items():
        found[name] = (fill, Requant.TFLM, DType.I8, DType.I8)
    for name in ("conv", "depthwise", "dense"):
        for width, weights in PACKED.items():
            found[f"{name}_{width}"] = (_RULED[name], Requant.TFLM, DType.I8, weights)
    for name, fill in _RULED.items():
        found[f"{name}_onnx"] = (fill, Requant.ONNX, DType.I8, DType.I8)
    for name, rule in (("quantize", Requant.TFLM), ("quantize_onnx", Requant.ONNX)):
        found[name] = (elementwise(_quantize), rule, DType.F32, DType.I8)
    found["dequant_matmul"] = (dequant_matmul, Requant.TFLM, DType.F32, DType.I8)
    return {name: _maker(name, *facts) for name, facts in found.items()}


def _maker(name: str, fill: Fill, rule: Requant, dtype: DType, weights: DType) -> Callable[[], Graph]:
    def make() -> Graph:
        cases = Cases(name, rule, dtype, weights)
        fill(cases)
        return cases.graph()

    return make
