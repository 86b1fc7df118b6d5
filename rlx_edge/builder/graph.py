"""The front page of writing a graph by hand: inputs, outputs and the common ops."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge import ir
from rlx_edge.builder.draft import Draft, Operand, known, numbers
from rlx_edge.builder.value import Value
from rlx_edge.errors import ModelError
from rlx_edge.ir import Array, DType, QuantParams, Shape, TensorType
from rlx_edge.ir.custom import find_custom
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Clamp,
    Concat,
    Constant,
    Conv,
    Input,
    LayerNorm,
    Layout,
    MatMul,
    Pad,
    Param,
    Pool,
    ReduceOp,
    Softmax,
    Where,
)

Pair = int | Sequence[int]
"""One number for rows and columns, or both; of a padding also (top, left, bottom, right)."""

_ADD = Binary(BinaryOp.ADD)


class Graph(Draft):
    """A graph that is being written; `build` gives the finished, immutable `rlx_edge.ir.Graph`.

    Ops take handles (`Value`), numpy arrays and numbers. Arrays become parameters, numbers constants, in the dtype of
    the operand beside them. Images are [N, C, H, W] and convolution weights [O, I, H, W]; with `layout` NHWC images are
    [N, H, W, C] and weights [O, H, W, I]. Every op that has no method here is `g.op(Kind(...), a, b)`. Names are made
    from the op, unless `name` is given; a name that is taken gets a number. Each method raises ModelError, naming the
    op and its operands' shapes, where these do not fit.
    """

    def __init__(self, name: str, layout: Layout = Layout.NCHW) -> None:
        super().__init__(name)
        self.layout = layout

    def input(
        self, name: str, shape: Sequence[int], dtype: DType = DType.F32, quant: QuantParams | None = None
    ) -> Value:
        """A tensor that is given when the graph runs."""
        sizes: Shape = tuple(int(size) for size in shape)
        if any(size < 1 for size in sizes):
            raise ModelError(f"input {name!r} of shape {list(sizes)}: every axis needs an element")
        return Value(self, self.builder.input(name, TensorType(sizes, known(dtype, name), quant)))

    def param(self, name: str, values: Array, dtype: DType | None = None, quant: QuantParams | None = None) -> Value:
        """Weights: float64 becomes float32, all else keeps its dtype, unless another is asked for."""
        held = numbers(values, dtype, name)
        return Value(self, self.builder.param(name, held, quant, dtype=dtype))

    def constant(self, values: Operand, dtype: DType | None = None, name: str = "constant") -> Value:
        """Numbers that stand in the graph itself, for few of them."""
        return Value(self, self.builder.constant(name, numbers(values, dtype, name)))

    def output(self, *values: Value, name: str | None = None) -> None:
        """Make tensors outputs of the graph, behind those before. `name`: what the output is called, if it is one."""
        if name is not None and len(values) != 1:
            raise ModelError(f"the name {name!r} for {len(values)} outputs: name them one by one")
        for value in values:
            made = self.value(value, None, "output")
            if name is not None and name != made.name:
                kind = self.builder[made.id].op
                if made.id in self.outputs or isinstance(kind, Input | Param | Constant):
                    raise ModelError(f"output {name!r}: the tensor is called {made.name!r} already")
                self.builder.rename(made.id, name)
            self.outputs.append(made.id)

    def build(self) -> ir.Graph:
        """The graph so far, verified. Raises ModelError with every problem, and where it has no output."""
        if not self.outputs:
            raise ModelError(f"{self.builder.name!r} has no output: g.output(y) names one")
        return self.builder.build(self.outputs)

    def conv(
        self,
        x: Value,
        w: Operand,
        bias: Operand | None = None,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        name: str | None = None,
    ) -> Value:
        """2-D convolution, and a bias for each output channel.

        `padding` "same" makes the output as large as the input over the stride, rounded up, with an odd row or column
        of padding at the end, as TensorFlow does. A depthwise convolution has as many `groups` as x has channels.
        """
        called = name or "conv"
        w = self.value(w, x, f"{called}.weight")
        if w.ndim != 4 or x.ndim != 4:
            raise ModelError(f"{called}: images and weights of rank 4 are needed, not x {x.type} and w {w.type}")
        kernel = w.shape[2:] if self.layout is Layout.NCHW else w.shape[1:3]
        strides, steps = _pair(stride), _pair(dilation)
        reach = tuple((k - 1) * step + 1 for k, step in zip(kernel, steps, strict=True))
        pads = self._padding(x, reach, strides, padding)
        made = self.op(Conv(kernel, strides, pads, steps, groups, self.layout), x, w, name=called)
        if bias is None:
            return made
        b = self.value(bias, x, f"{called}.bias")
        return self.op(_ADD, made, b.reshape(-1, 1, 1) if self.layout is Layout.NCHW else b, name=f"{called}.biased")

    def dense(self, x: Value, w: Operand, bias: Operand | None = None, name: str | None = None) -> Value:
        """x [.., K] times w [K, N], and a bias [N]."""
        called = name or "dense"
        made = self.op(MatMul(), x, self.value(w, x, f"{called}.weight"), name=called)
        return (
            made
            if bias is None
            else self.op(_ADD, made, self.value(bias, x, f"{called}.bias"), name=f"{called}.biased")
        )

    def max_pool(self, x: Value, size: Pair, stride: Pair | None = None, padding: Pair | str = 0) -> Value:
        """The largest of each window; `stride`: by default the window's size."""
        return self._pool(ReduceOp.MAX, x, size, stride, padding, "max_pool")

    def avg_pool(self, x: Value, size: Pair, stride: Pair | None = None, padding: Pair | str = 0) -> Value:
        """The mean of each window, without the padding. The mean of a whole image is `x.mean((2, 3))`."""
        return self._pool(ReduceOp.MEAN, x, size, stride, padding, "avg_pool")

    def _pool(self, kind: ReduceOp, x: Value, size: Pair, stride: Pair | None, padding: Pair | str, name: str) -> Value:
        window, strides = _pair(size), _pair(size if stride is None else stride)
        pads = self._padding(x, window, strides, padding)
        return self.op(Pool(kind, window, strides, pads, self.layout), x, name=name)

    def _padding(
        self, x: Value, reach: tuple[int, ...], stride: tuple[int, ...], padding: Pair | str
    ) -> tuple[int, ...]:
        if not isinstance(padding, str):
            return _pair(padding)
        if padding != "same":
            raise ModelError(f"padding {padding!r}: numbers or 'same' are possible")
        sizes = x.shape[2:4] if self.layout is Layout.NCHW else x.shape[1:3]
        missing = [
            max((-(-size // step) - 1) * step + window - size, 0)
            for size, window, step in zip(sizes, reach, stride, strict=True)
        ]
        first = [total // 2 for total in missing]
        return (*first, *(total - before for total, before in zip(missing, first, strict=True)))

    def activation(self, fn: ActivationFn, x: Value) -> Value:
        """Any of the vocabulary's functions of one number."""
        return self.op(Activation(fn), x)

    def relu(self, x: Value) -> Value:
        return self.activation(ActivationFn.RELU, x)

    def relu6(self, x: Value) -> Value:
        """min(max(x, 0), 6)."""
        return self.op(Clamp(0.0, 6.0), x, name="relu6")

    def leaky_relu(self, x: Value, alpha: float = 0.01) -> Value:
        """x above 0, alpha * x below."""
        return self.op(Activation(ActivationFn.LEAKY_RELU, alpha), x)

    def sigmoid(self, x: Value) -> Value:
        return self.activation(ActivationFn.SIGMOID, x)

    def tanh(self, x: Value) -> Value:
        return self.activation(ActivationFn.TANH, x)

    def silu(self, x: Value) -> Value:
        return self.activation(ActivationFn.SILU, x)

    def gelu(self, x: Value) -> Value:
        return self.activation(ActivationFn.GELU, x)

    def hard_swish(self, x: Value) -> Value:
        return self.activation(ActivationFn.HARD_SWISH, x)

    def exp(self, x: Value) -> Value:
        return self.activation(ActivationFn.EXP, x)

    def sqrt(self, x: Value) -> Value:
        return self.activation(ActivationFn.SQRT, x)

    def softmax(self, x: Value, axis: int = -1) -> Value:
        return self.op(Softmax(axis), x)

    def layer_norm(self, x: Value, gamma: Operand, beta: Operand, axis: int = -1, eps: float = 1e-5) -> Value:
        """gamma * (x - mean) / sqrt(variance + eps) + beta along an axis."""
        return self.op(LayerNorm(axis, eps), x, gamma, beta)

    def concat(self, values: Sequence[Operand], axis: int) -> Value:
        """Tensors joined along an axis."""
        return self.op(Concat(axis), *values)

    def pad(self, x: Value, pads: Sequence[Sequence[int]], value: float = 0.0) -> Value:
        """Each axis grown by (before, after), filled with a value."""
        return self.op(Pad(tuple((int(a), int(b)) for a, b in pads), value=float(value)), x)

    def where(self, cond: Value, on_true: Operand, on_false: Operand) -> Value:
        """on_true where cond (bool) holds, else on_false; one of the two must be a handle."""
        like = next((v for v in (on_true, on_false) if isinstance(v, Value)), None)
        if like is None:
            raise ModelError("where: numbers on both sides: make one a g.constant(.., dtype)")
        return self.op(
            Where(), cond, self.value(on_true, like, "where.true"), self.value(on_false, like, "where.false")
        )

    def custom(
        self,
        kind: str,
        *operands: Operand,
        attrs: bytes = b"",
        name: str | None = None,
        quant: QuantParams | None = None,
    ) -> Value:
        """A registered op of a user (docs/custom-ops.md)."""
        from rlx_edge.ir.ops.control import Custom

        if find_custom(kind) is None:
            raise ModelError(f"the custom op {kind!r} is not registered: rlx_edge.register_custom(CustomOp(...))")
        return self.op(Custom(kind, len(operands), attrs), *operands, name=name or kind, quant=quant)


def _pair(numbers: Pair) -> tuple[int, ...]:
    return (numbers, numbers) if isinstance(numbers, int) else tuple(int(n) for n in numbers)
