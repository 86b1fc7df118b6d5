"""Shape inference of every op, against values worked out by hand or by numpy, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.ir import DType, GraphBuilder, QuantParams, Requant, Shape, TensorType
from rlx_edge.ir.ops import (
    ALL,
    EMA,
    Activation,
    ActivationFn,
    ArgMax,
    ArgMin,
    ArgSort,
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    CmpOp,
    Compare,
    Concat,
    Conv,
    Conv3d,
    ConvTranspose2d,
    CumProd,
    Cumsum,
    Dequantize,
    DequantMatMul,
    Expand,
    FakeQuantize,
    FakeQuantizeBackward,
    FakeQuantizeLSQ,
    FakeQuantizeLSQBackwardScale,
    FakeQuantizeLSQBackwardX,
    Fixed,
    Gather,
    GatherElements,
    GatherNd,
    GroupNorm,
    LayerNorm,
    Layout,
    Leaf,
    MatMul,
    Narrow,
    Op,
    Pad,
    PadMode,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    QuantScheme,
    Reduce,
    ReduceOp,
    Reshape,
    Reverse,
    RmsNorm,
    ScatterElements,
    ScatterNd,
    SchemeKind,
    ShapeError,
    Slice,
    Softmax,
    SteKind,
    Tile,
    TopK,
    Transpose,
    Trilu,
    Where,
)

F32, I8, I32 = DType.F32, DType.I8, DType.I32
Q = QuantParams.per_tensor(0.5, 0)


def window(
    kernel: tuple[int, int], stride: int = 1, padding: tuple[int, ...] = (0, 0), dilation: int = 1
) -> dict[str, Any]:
    return {
        "kernel_size": kernel,
        "stride": (stride, stride),
        "padding": padding,
        "dilation": (dilation, dilation),
        "groups": 1,
    }


def q_conv(groups: int = 1, **changes: Any) -> QConv2d:
    fields = window((3, 3), 2, (0, 0, 1, 1)) | {"groups": groups, "layout": Layout.NHWC} | changes
    return QConv2d(x_zp=0, w_zp=0, out_zp=0, mult=(1.0,), **fields)


CASES: list[tuple[Op, list[tuple[DType, Shape]], tuple[DType, Shape]]] = [
    (Quantize.to(Q, Requant.TFLM), [(F32, (2, 3))], (I8, (2, 3))),
    (Dequantize.of(Q), [(I8, (2, 3))], (F32, (2, 3))),
    (QMatMul(0, 0, 0, (1.0,)), [(I8, (2, 5)), (I8, (5, 3)), (I32, (3,))], (I8, (2, 3))),
    (
        DequantMatMul(QuantScheme(SchemeKind.INT8_BLOCK, 4)),
        [(F32, (2, 5)), (I8, (5, 3)), (F32, (2, 3)), (F32, (2, 3)), (F32, (3,))],
        (F32, (2, 3)),
    ),
    (q_conv(), [(I8, (1, 8, 9, 2)), (I8, (4, 3, 3, 2)), (I32, (4,))], (I8, (1, 4, 4, 4))),
    (q_conv(groups=2), [(I8, (3, 8, 8, 2)), (I8, (6, 3, 3, 1)), (I32, (6,))], (I8, (3, 4, 4, 6))),
    (
        q_conv(layout=Layout.NCHW, padding=(1, 1), dilation=(2, 2)),
        [(I8, (1, 2, 9, 9)), (I8, (4, 2, 3, 3)), (I32, (4,))],
        (I8, (1, 4, 4, 4)),
    ),
    (Conv(**window((3, 2), padding=(1, 0))), [(F32, (2, 3, 5, 5)), (F32, (4, 3, 3, 2))], (F32, (2, 4, 5, 4))),
    (Pool(ReduceOp.MAX, (2, 2), (2, 2), (0, 0)), [(F32, (1, 3, 5, 4))], (F32, (1, 3, 2, 2))),
    (Pool(ReduceOp.MEAN, (3, 3), (2, 2), (0, 0, 1, 1), Layout.NHWC), [(I8, (1, 4, 4, 3))], (I8, (1, 2, 2, 3))),
    (MatMul(), [(F32, (7, 1, 2, 5)), (F32, (4, 5, 3))], (F32, (7, 4, 2, 3))),
    (Binary(BinaryOp.ADD), [(I8, (2, 1, 3)), (I8, (4, 1))], (I8, (2, 4, 3))),
    (Activation(ActivationFn.RELU), [(F32, (2, 3))], (F32, (2, 3))),
    (Clamp(0.0, 6.0), [(I8, (2, 3))], (I8, (2, 3))),
    (Reduce(ReduceOp.MEAN, (1, -1), keep_dim=True), [(F32, (2, 3, 4))], (F32, (2, 1, 1))),
    (Reduce(ReduceOp.MEAN, (0, 1, 2), keep_dim=False), [(F32, (2, 3, 4))], (F32, ())),
    (Softmax(-1), [(F32, (2, 3))], (F32, (2, 3))),
    (Reshape((4, -1)), [(I8, (2, 3, 2))], (I8, (4, 3))),
    (Transpose((2, 0, 1)), [(F32, (2, 3, 4))], (F32, (4, 2, 3))),
    (Pad(((1, 2), (0, 3))), [(F32, (2, 3))], (F32, (5, 6))),
    (Concat(-1), [(F32, (2, 3)), (F32, (2, 1)), (F32, (2, 4))], (F32, (2, 8))),
    (
        ConvTranspose2d((3, 2), (2, 3), (1, 0), (1, 1), (1, 0), 2),
        [(F32, (1, 4, 5, 6)), (F32, (4, 3, 3, 2))],
        (F32, (1, 6, 10, 17)),
    ),
    (
        Conv3d((1, 2, 1), (1, 0, 0, 1, 1, 0), (1, 1, 2), 1),
        [(F32, (1, 2, 4, 5, 6)), (F32, (3, 2, 3, 2, 2))],
        (F32, (1, 3, 4, 3, 4)),
    ),
    (Cast(DType.BOOL), [(F32, (2, 3))], (DType.BOOL, (2, 3))),
    (Compare(CmpOp.LE), [(I32, (2, 1)), (I32, (3,))], (DType.BOOL, (2, 3))),
    (Where(), [(DType.BOOL, (3,)), (F32, (2, 1)), (F32, ())], (F32, (2, 3))),
    (Cumsum(-1, exclusive=True), [(I32, (2, 3))], (I32, (2, 3))),
    (CumProd(0, exclusive=False), [(F32, (2, 3))], (F32, (2, 3))),
    (ArgMax(1, keep_dim=False), [(I8, (2, 3, 4))], (F32, (2, 4))),
    (ArgMin(-1, keep_dim=True), [(F32, (2, 3, 4))], (F32, (2, 3, 1))),
    (TopK(2), [(F32, (4, 3))], (F32, (4, 2))),
    (ArgSort(0, descending=True), [(F32, (4, 3))], (F32, (4, 3))),
    (LayerNorm(-1, 1e-5), [(F32, (2, 3)), (F32, (3,)), (F32, (3,))], (F32, (2, 3))),
    (RmsNorm(0, 1e-5), [(F32, (2, 3)), (F32, (2,))], (F32, (2, 3))),
    (RmsNorm(0, 1e-5), [(F32, (2, 3)), (F32, (2,)), (F32, (2,))], (F32, (2, 3))),
    (GroupNorm(2, 1e-5), [(F32, (1, 4, 3)), (F32, (4,)), (F32, (4,))], (F32, (1, 4, 3))),
    (Pad(((1, 2), (0, 2)), PadMode.REFLECT), [(F32, (3, 3))], (F32, (6, 5))),
    (Narrow(1, 2, 3), [(I8, (2, 5))], (I8, (2, 3))),
    (Slice(1, 4, 3, -2), [(I8, (2, 5))], (I8, (2, 3))),
    (Expand((4, 2, 3)), [(F32, (2, 1))], (F32, (4, 2, 3))),
    (Tile((2, 3)), [(F32, (2, 1))], (F32, (4, 3))),
    (Reverse((0, -1)), [(F32, (2, 1))], (F32, (2, 1))),
    (Trilu(upper=True, diagonal=-1), [(F32, (2, 3, 3))], (F32, (2, 3, 3))),
    (Gather(1), [(F32, (2, 5, 3)), (I32, (4, 1))], (F32, (2, 4, 1, 3))),
    (GatherElements(1), [(F32, (2, 5)), (DType.I64, (1, 7))], (F32, (1, 7))),
    (GatherNd(1), [(F32, (2, 5, 3)), (DType.I64, (2, 4, 1))], (F32, (2, 4, 3))),
    (ScatterElements(0), [(F32, (2, 5)), (I32, (1, 3)), (F32, (1, 3))], (F32, (2, 5))),
    (ScatterNd(), [(F32, (2, 5)), (I32, (3, 1)), (F32, (3, 5))], (F32, (2, 5))),
    (FakeQuantize(4, None), [(F32, (2, 3))], (F32, (2, 3))),
    (FakeQuantize(4, -1, scale_mode=EMA(0.9)), [(F32, (2, 3)), (F32, (3,))], (F32, (2, 3))),
    (FakeQuantizeBackward(4, 0, SteKind.TANH), [(F32, (2, 3)), (F32, (2, 3))], (F32, (2, 3))),
    (FakeQuantizeLSQ(2, None), [(F32, (2, 3)), (F32, (1,))], (F32, (2, 3))),
    (FakeQuantizeLSQBackwardX(2, 0), [(F32, (2, 3)), (F32, (2,)), (F32, (2, 3))], (F32, (2, 3))),
    (FakeQuantizeLSQBackwardScale(3, 1), [(F32, (2, 3)), (F32, (3,)), (F32, (2, 3))], (F32, (3,))),
]


def types(operands: list[tuple[DType, Shape]]) -> list[TensorType]:
    return [TensorType(shape, dtype) for dtype, shape in operands]


@pytest.mark.parametrize(("op", "operands", "expected"), CASES, ids=lambda v: v.kind_name if isinstance(v, Op) else "")
def test_inference(op: Op, operands: list[tuple[DType, Shape]], expected: tuple[DType, Shape]) -> None:
    shape, dtype = op.infer(types(operands))
    assert (dtype, shape) == expected


def test_every_kind_that_computes_has_a_case() -> None:
    assert {type(op) for op, _, _ in CASES} == {kind for kind in ALL if not issubclass(kind, Leaf)}


BAD: list[tuple[Op, list[tuple[DType, Shape]], str]] = [
    (Dequantize.of(Q), [(F32, (2,))], "integer operand"),
    (QMatMul(0, 0, 0, (1.0,)), [(I8, (2, 5)), (I8, (4, 3)), (I32, (3,))], "are not"),
    (QMatMul(0, 0, 0, (1.0,)), [(I8, (2, 5)), (I8, (5, 3)), (I32, (4,))], "bias"),
    (QMatMul(0, 0, 0, (1.0,)), [(F32, (2, 5)), (I8, (5, 3)), (I32, (3,))], "must be i8"),
    (q_conv(), [(I8, (1, 8, 8, 3)), (I8, (4, 3, 3, 2)), (I32, (4,))], "3 input"),
    (q_conv(groups=2), [(I8, (1, 8, 8, 4)), (I8, (3, 3, 3, 2)), (I32, (3,))], "2 groups"),
    (q_conv(), [(I8, (1, 8, 8, 2)), (I8, (4, 2, 3, 2)), (I32, (4,))], "kernel_size"),
    (q_conv(stride=(0, 1)), [(I8, (1, 8, 8, 2)), (I8, (4, 3, 3, 2)), (I32, (4,))], "positive"),
    (q_conv(padding=(1,)), [(I8, (1, 8, 8, 2)), (I8, (4, 3, 3, 2)), (I32, (4,))], "two or four"),
    (q_conv(), [(I8, (8, 8, 2)), (I8, (4, 3, 3, 2)), (I32, (4,))], "rank 4"),
    (Conv(**window((3, 3), dilation=4)), [(F32, (1, 1, 8, 8)), (F32, (1, 1, 3, 3))], "a window of 9 over 8"),
    (Pool(ReduceOp.MAX, (2, 2), (2, 2), (2, 2)), [(F32, (1, 3, 5, 4))], "as wide as the window"),
    (MatMul(), [(F32, (2, 5)), (F32, (4, 3))], "are not"),
    (Binary(BinaryOp.ADD), [(I8, (2, 3)), (I8, (2,))], "do not broadcast"),
    (Binary(BinaryOp.ADD), [(I8, (2,)), (F32, (2,))], "different dtypes"),
    (Reduce(ReduceOp.MEAN, (3,), keep_dim=True), [(F32, (2, 3, 4))], "axis 3"),
    (Softmax(2), [(F32, (2, 3))], "axis 2"),
    (Reshape((4, -1)), [(I8, (2, 3))], "does not reshape"),
    (Reshape((-1, -1)), [(I8, (2, 3))], "does not reshape"),
    (Reshape((7,)), [(I8, (2, 3))], "does not reshape"),
    (Transpose((0, 0)), [(F32, (2, 3))], "perm"),
    (Pad(((1, 2),)), [(F32, (2, 3))], "pads"),
    (Concat(0), [(F32, (2, 3)), (F32, (2, 4))], "do not join"),
    (Activation(ActivationFn.SIGMOID), [(I32, (2,))], "Sigmoid of i32"),
    (Binary(BinaryOp.SHL), [(F32, (2,)), (F32, (2,))], "Shl of f32"),
    (Binary(BinaryOp.ADD), [(DType.BOOL, (2,)), (DType.BOOL, (2,))], "Add of bool"),
    (ConvTranspose2d((2, 2), (1, 1), (3, 3), (1, 1), (0, 0), 1), [(F32, (1, 1, 2, 2)), (F32, (1, 1, 2, 2))], "nothing"),
    (Conv3d((1, 1, 1), (0,), (1, 1, 1), 1), [(F32, (1, 1, 2, 2, 2)), (F32, (1, 1, 2, 2, 2))], "three or six"),
    (Where(), [(F32, (2,)), (F32, (2,)), (F32, (2,))], "a bool and two"),
    (Compare(CmpOp.EQ), [(F32, (2,)), (I32, (2,))], "different dtypes"),
    (TopK(4), [(F32, (2, 3))], "4 largest of 3"),
    (ArgMax(0, keep_dim=True), [(F32, ((1 << 24) + 1,))], "float32 indices"),
    (LayerNorm(-1, 1e-5), [(F32, (2, 3)), (F32, (2,)), (F32, (3,))], "a factor"),
    (GroupNorm(3, 1e-5), [(F32, (1, 4, 3)), (F32, (4,)), (F32, (4,))], "3 groups"),
    (Pad(((3, 0),), PadMode.REFLECT), [(F32, (3,))], "too wide"),
    (Narrow(0, 2, 2), [(F32, (3,))], "2 elements from 2"),
    (Slice(0, 0, 2, 0), [(F32, (3,))], "by 0"),
    (Expand((2,)), [(F32, (3,))], "do not broadcast"),
    (Expand((1,)), [(F32, (3,))], "does not expand"),
    (Reverse((0, -2)), [(F32, (3, 2))], "one of them twice"),
    (Tile((0, 1)), [(F32, (3, 2))], "reps"),
    (Gather(0), [(F32, (3,)), (F32, (3,))], "i32 or i64"),
    (GatherElements(0), [(F32, (3, 2)), (I32, (3, 3))], "indices"),
    (GatherNd(0), [(F32, (3,)), (I32, (3, 2))], "indices"),
    (ScatterNd(), [(F32, (2, 5)), (I32, (3, 1)), (F32, (3, 4))], "updates"),
    (FakeQuantize(1, None), [(F32, (2,))], "1 bits; 2 to 8"),
    (FakeQuantize(4, None), [(I8, (2,))], "f32 operand"),
    (FakeQuantize(4, 0, scale_mode=Fixed()), [(F32, (2, 3)), (F32, (3,))], r"scales must be f32\[2\]"),
    (FakeQuantizeLSQ(4, 2), [(F32, (2, 3)), (F32, (3,))], "axis 2"),
    (FakeQuantizeLSQBackwardX(4, None), [(F32, (2,)), (F32, (1,)), (F32, (3,))], "one type"),
]


@pytest.mark.parametrize(("op", "operands", "words"), BAD, ids=lambda v: v.kind_name if isinstance(v, Op) else "")
def test_operands_that_do_not_fit(op: Op, operands: list[tuple[DType, Shape]], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        op.infer(types(operands))


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(shapes, shapes)
def test_broadcasting_is_numpys(a: Shape, b: Shape) -> None:
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ShapeError):
            Binary(BinaryOp.MUL).infer(types([(F32, a), (F32, b)]))
        return
    assert Binary(BinaryOp.MUL).infer(types([(F32, a), (F32, b)]))[0] == expected


@given(shapes, st.data(), st.booleans())
def test_reductions_are_numpys(shape: Shape, data: st.DataObject, keep: bool) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True).map(tuple))
    expected = np.zeros(shape).sum(axis=axes, keepdims=keep).shape
    assert Reduce(ReduceOp.SUM, axes, keep).infer(types([(F32, shape)]))[0] == expected


@given(
    st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)
)
def test_window_positions(size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> None:
    """Counted one by one: windows that lie within the padded image."""
    reach = (kernel - 1) * dilation + 1
    expected = len(range(0, size + before + after - reach + 1, stride))
    op = Conv(
        **(window((kernel, 1), padding=(before, 0, after, 0)) | {"stride": (stride, 1), "dilation": (dilation, 1)})
    )
    operands = types([(F32, (1, 1, size, 1)), (F32, (1, 1, kernel, 1))])
    if expected == 0:
        with pytest.raises(ShapeError):
            op.infer(operands)
    else:
        assert op.infer(operands)[0] == (1, 1, expected, 1)


def test_macs_count_every_product() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((1, 8, 8, 2), F32))
    w = builder.param("w", np.zeros((4, 3, 3, 2), np.float32))
    y = builder.add(Conv(**(window((3, 3)) | {"layout": Layout.NHWC})), [x, w], "y")
    graph = builder.build([y])
    assert graph.macs(graph.nodes[y]) == 6 * 6 * 4 * 3 * 3 * 2
    assert MatMul().macs(types([(F32, (2, 5)), (F32, (5, 3))]), TensorType((2, 3), F32)) == 30


def test_a_count_of_operands_that_follows_from_the_attributes() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((2,), F32))
    with pytest.raises(ShapeError, match="2 operands where 1 are needed"):
        builder.add(FakeQuantize(4, None), [x, x], "y")
    assert builder[builder.add(FakeQuantize(4, 0, scale_mode=Fixed()), [x, x], "y")].type.shape == (2,)
