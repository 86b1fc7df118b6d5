"""Shapes, display strings, operand counts and misfits of elementwise, product, norm, image and fused kinds."""

from __future__ import annotations

import numpy as np
import pytest
from one_op import compute

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import DType, GraphBuilder, Shape, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Op, ShapeError
from rlx_edge.ir.ops.fused import (
    FusedConvBiasAct,
    FusedMatMulBiasAct,
    FusedMatMulResidual,
    FusedResidualLN,
    FusedResidualRmsNorm,
    FusedSwiGLU,
)
from rlx_edge.ir.ops.modulation import AdaLayerNorm, AdaNormKind, BatchNormInference, LayerNorm2d
from rlx_edge.ir.ops.ordering import CumMax, Histogram, Roll, ScatterAdd, Sort
from rlx_edge.ir.ops.pointwise import Fma, GatedResidual, StopGradient
from rlx_edge.ir.ops.products import DotGeneral, LoraMatMul, PartitionedConv
from rlx_edge.ir.ops.regions import (
    BatchElementwiseRegion,
    ChainOperand,
    ChainStep,
    ElementwiseRegion,
    RegionPrologue,
    Source,
    TransformRegion,
)
from rlx_edge.ir.ops.volumes import ConvTranspose3d, Im2Col, Interpolate3d, ResizeNearest2x
from rlx_edge.ir.vocabulary import find_kind

F32, F16, I32, I64, BOOL = DType.F32, DType.F16, DType.I32, DType.I64, DType.BOOL
RELU = ActivationFn.RELU
FIRST = (ChainOperand(Source.INPUT, 0),)
CHAIN = (ChainStep(Activation(RELU), FIRST), ChainStep(Binary(BinaryOp.ADD), FIRST * 2))
WHOLE = (0,) * 16
CONV = ((3, 3), (2, 2), (0, 1), (1, 1), 2)

CASES: list[tuple[Op, str, list[Shape], Shape]] = [
    (StopGradient(), "stop_gradient", [(2, 3)], (2, 3)),
    (Fma(), "fma", [(2, 3)] * 3, (2, 3)),
    (GatedResidual(), "gated_residual", [(2, 5, 3), (2, 5, 3), (2, 1, 3)], (2, 5, 3)),
    (BatchNormInference(1e-5), "batch_norm_inference(eps=0.00001)", [(2, 3), *[(3,)] * 4], (2, 3)),
    (LayerNorm2d(1e-6), "layer_norm2d(eps=0.000001)", [(2, 3, 4, 5), (3,), (3,)], (2, 3, 4, 5)),
    (
        AdaLayerNorm(AdaNormKind.RMS_NORM, 0.5),
        "ada_layer_norm(RmsNorm,eps=0.5)",
        [(2, 4, 3), *[(2, 1, 3)] * 2],
        (2, 4, 3),
    ),
    (DotGeneral((2,), (1,), (0,), (0,)), "dot_general", [(7, 2, 5), (7, 5, 3)], (7, 2, 3)),
    (DotGeneral((), (), (), ()), "dot_general", [(2, 3), (4,)], (2, 3, 4)),
    (LoraMatMul(2.0), "lora_matmul(scale=2)", [(2, 5), (5, 3), (5, 1), (1, 3)], (2, 3)),
    (PartitionedConv(64), "partitioned_conv(block=64)", [(2, 100), (8,)], (2, 107)),
    (Roll((-1, 2), (1, 0)), "roll([-1, 2],dims=[1, 0])", [(2, 3)], (2, 3)),
    (Sort(1, True), "sort(axis=1,desc=true)", [(2, 3)], (2, 3)),
    (CumMax(-1, False), "cummax(axis=-1)", [(2, 3)], (2, 3)),
    (CumMax(0, True), "cummax(axis=0,excl)", [(2, 3)], (2, 3)),
    (Histogram(8, -1.5, 2.0), "histogram(bins=8,[-1.5,2])", [(2, 3)], (8,)),
    (ResizeNearest2x(), "resize_nearest_2x", [(2, 3, 4, 5)], (2, 3, 8, 10)),
    (Interpolate3d((1, 2, 3)), "interpolate3d(size=[1,2,3])", [(2, 3, 4, 5, 6)], (2, 3, 1, 2, 3)),
    (Im2Col((3, 2), (2, 1), (1, 0), (1, 2)), "im2col([3, 2])", [(2, 3, 5, 6)], (2 * 3 * 4, 3 * 6)),
    (
        ConvTranspose3d((1, 2, 3), (0, 1, 0), (1, 1, 2), (0, 1, 0), 2),
        "conv_transpose3d(stride=[1, 2, 3])",
        [(2, 4, 3, 4, 5), (4, 3, 2, 2, 2)],
        (2, 6, 4, 7, 15),
    ),
    (ElementwiseRegion(CHAIN, 1, 0, WHOLE), "ew_region(in=1,steps=2)", [(2, 3)], (2, 3)),
    (
        ElementwiseRegion(CHAIN, 2, 2, WHOLE, RegionPrologue.RESIZE_NEAREST_2X),
        "ew_region(in=2,steps=2,scalar_mask=0x2,prologue=resize2x)",
        [(1, 1, 2, 3), (1,)],
        (1, 1, 4, 6),
    ),
    (
        TransformRegion((ChainStep(ResizeNearest2x(), FIRST),), 1),
        "transform_region(in=1,steps=1)",
        [(1, 1, 2, 3)],
        (1, 1, 4, 6),
    ),
    (FusedSwiGLU(None, False), "fused_swiglu()", [(2, 6)], (2, 3)),
    (FusedSwiGLU(None, True), "fused_swiglu(,gate_first)", [(2, 6)], (2, 3)),
    (FusedMatMulBiasAct(None), "fused_mm_bias", [(2, 5), (5, 3), (3,)], (2, 3)),
    (FusedMatMulBiasAct(RELU), "fused_mm_bias_Relu", [(7, 2, 5), (5, 3), (3,)], (7, 2, 3)),
    (FusedMatMulResidual(), "fused_mm_residual", [(2, 5), (5, 3), (2, 3)], (2, 3)),
    (FusedConvBiasAct(*CONV, None, False), "fused_conv_bias", [(1, 4, 7, 7), (6, 2, 3, 3), (6,)], (1, 6, 3, 4)),
    (
        FusedConvBiasAct(*CONV, RELU, True),
        "fused_conv_bias_res_Relu",
        [(1, 4, 7, 7), (6, 2, 3, 3), (6,), (1, 6, 3, 4)],
        (1, 6, 3, 4),
    ),
    (FusedResidualLN(False, 1e-5), "fused_residual_ln(eps=0.00001)", [(2, 3), (2, 3), (3,), (3,)], (2, 3)),
    (FusedResidualRmsNorm(True, 1e-5), "fused_residual_bias_rms(eps=0.00001)", [(2, 3)] * 2 + [(3,)] * 3, (2, 3)),
]

WIDE = {StopGradient, GatedResidual, BatchNormInference, LayerNorm2d, AdaLayerNorm, DotGeneral, LoraMatMul} | {
    *(PartitionedConv, Roll, Sort, CumMax, ResizeNearest2x, Interpolate3d, Im2Col, ConvTranspose3d)
}
"""Kinds that the reference computes in every floating-point dtype."""


@pytest.mark.parametrize(("op", "text", "shapes", "expected"), CASES, ids=[case[1] for case in CASES])
def test_shapes_and_text(op: Op, text: str, shapes: list[Shape], expected: Shape) -> None:
    assert op.display() == text
    assert op.arity.accepts(len(shapes)) and not op.arity.accepts(len(shapes) + 1)
    assert op.infer([TensorType(shape, F32) for shape in shapes]) == (expected, F32)
    assert find_kind(op.kind_name) is type(op)


OTHER_FLOATS = [(op, shapes) for op, _, shapes, _ in CASES if type(op) in WIDE]


@pytest.mark.parametrize(("op", "shapes"), OTHER_FLOATS, ids=[op.kind_name for op, _ in OTHER_FLOATS])
def test_other_floats_are_computed_too(op: Op, shapes: list[Shape]) -> None:
    """To the digits that they have; one_op checks that the dtype stays."""
    random = np.random.default_rng(0)
    values = [np.abs(random.normal(size=shape)).astype(np.float16) for shape in shapes]
    single = compute(op, *(value.astype(np.float32) for value in values))
    np.testing.assert_allclose(compute(op, *values), single.astype(np.float16), rtol=1e-3)
    np.testing.assert_allclose(compute(op, *(value.astype(np.float64) for value in values)), single, rtol=1e-6)


def test_fma_of_float64_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="no Fma on f64"):
        compute(Fma(), *np.ones((3, 2)))


def test_a_cast_decides_the_dtype() -> None:
    op = FusedSwiGLU(F16, True)
    assert (op.display(), op.infer([TensorType((2, 6), F32)])) == ("fused_swiglu(cast=f16,gate_first)", ((2, 3), F16))


def test_declared_kinds() -> None:
    add, batch = ScatterAdd(1), BatchElementwiseRegion(CHAIN, 2, 0, WHOLE)
    assert add.display() == "scatter_add(axis=1)"
    assert batch.display() == "batch_ew_region(batch=2,steps=2,mask=0x0,prologue=None)"
    add.check([TensorType((2, 5), F32), TensorType((5,), I64)], TensorType((2, 9), F32))
    batch.check([TensorType((1, 3), F32)] * 2, TensorType((2, 3), F32))


MISFITS: list[tuple[Op, list[tuple[DType, Shape]], str]] = [
    (Fma(), [(F32, (2,)), (F32, (1,)), (F32, (2,))], r"b is f32\[1\]"),
    (Fma(), [(I32, (2,))] * 3, "a float is needed"),
    (Fma(), [(F32, (2,)), (F16, (2,)), (F32, (2,))], "different dtypes: f32, f16, f32"),
    (GatedResidual(), [(F32, (2, 3)), (F32, (2, 3)), (F32, (2, 1))], "gate is"),
    (GatedResidual(), [(F32, (2, 3)), (F32, (2, 3)), (F32, (4, 3))], "do not broadcast"),
    (GatedResidual(), [(F32, (3,)), (F32, (3,)), (F32, (4, 3))], "gate is"),
    (BatchNormInference(1e-5), [(F32, (2, 3)), *[(F32, (3,))] * 3, (F32, (2,))], "the variance is"),
    (BatchNormInference(1e-5), [(F32, ())] * 5, "scalar"),
    (LayerNorm2d(1e-5), [(F32, (2, 3)), (F32, (3,)), (F32, (3,))], "rank 4"),
    (LayerNorm2d(1e-5), [(F32, (2, 3, 1, 1)), (F32, (3,)), (F32, (2,))], "beta is"),
    (AdaLayerNorm(AdaNormKind.LAYER_NORM, 1e-5), [(F32, (2, 3)), (F32, (3,)), (F32, (1, 3))], "shift is"),
    (DotGeneral((1,), (1,), (), ()), [(F32, (2, 5)), (F32, (5, 3))], "differ"),
    (DotGeneral((1,), (0,), (1,), (1,)), [(F32, (2, 5)), (F32, (5, 5))], "named once"),
    (DotGeneral((2,), (0,), (), ()), [(F32, (2, 5)), (F32, (5, 3))], "from 0 to 1"),
    (DotGeneral((1,), (0,), (), ()), [(F32, (2, 5)), (F16, (5, 3))], "different dtypes"),
    (LoraMatMul(1.0), [(F32, (2, 5)), (F32, (5, 3)), (F32, (5, 1)), (F32, (2, 3))], "b is"),
    (PartitionedConv(0), [(F32, (2, 5)), (F32, (5,))], "partitions of 0"),
    (PartitionedConv(1), [(F32, (2, 5)), (F32, (5, 1))], "rank 1"),
    (Roll((1,), (0, 1)), [(F32, (2, 5))], "1 shifts along 2 dims"),
    (Roll((1,), (2,)), [(F32, (2, 5))], "rank 2"),
    (Sort(2, False), [(F32, (2, 5))], "axis 2"),
    (CumMax(0, False), [(BOOL, (2, 5))], "bools"),
    (Histogram(0, 0.0, 1.0), [(F32, (2, 5))], "0 bins"),
    (Histogram(1, 1.0, 1.0), [(F32, (2, 5))], "1 bins"),
    (Histogram(1, 0.0, 1.0), [(I32, (2, 5))], "f32 is needed"),
    (ResizeNearest2x(), [(F32, (2, 5))], "rank 4"),
    (Interpolate3d((1, 0, 1)), [(F32, (1, 1, 2, 2, 2))], "positive"),
    (Im2Col((9, 1), (1, 1), (0, 0), (1, 1)), [(F32, (1, 1, 5, 5))], "a window of 9"),
    (ConvTranspose3d((1,) * 3, (3,) * 3, (1,) * 3, (0,) * 3, 1), [(F32, (1, 1, 2, 2, 2))] * 2, "leaves nothing"),
    (ConvTranspose3d((1,) * 3, (0,) * 3, (1,) * 3, (0,) * 3, 2), [(F32, (1, 3, 2, 2, 2))] * 2, "in 2 groups"),
    (FusedSwiGLU(None, False), [(F32, (2, 5))], "two halves"),
    (FusedMatMulBiasAct(None), [(F32, (2, 5)), (F32, (5, 3)), (F32, (2, 3))], "bias is"),
    (FusedMatMulResidual(), [(F32, (2, 5)), (F32, (5, 3)), (F32, (3,))], "residual is"),
    (FusedConvBiasAct(*CONV, None, False), [(F32, (1, 4, 7, 7)), (F32, (6, 2, 3, 3)), (F32, (3,))], "bias is"),
    (FusedResidualLN(True, 1e-5), [(F32, (2, 3)), (F32, (2, 3)), *[(F32, (3,))] * 2, (F32, (2,))], "beta is"),
    (FusedResidualRmsNorm(False, 1e-5), [(F32, (2, 3)), (F32, (2, 3)), (F32, (2,)), (F32, (3,))], "gamma is"),
]


@pytest.mark.parametrize(("op", "operands", "message"), MISFITS, ids=[f"{m[0].kind_name} {m[2]}" for m in MISFITS])
def test_misfits(op: Op, operands: list[tuple[DType, Shape]], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        op.infer([TensorType(shape, dtype) for dtype, shape in operands])


@pytest.mark.parametrize(
    ("indices", "out", "message"),
    [
        (TensorType((4,), I64), TensorType((2, 9), F32), "indices is"),
        (TensorType((5,), BOOL), TensorType((2, 9), F32), "i64, i32 or"),
        (TensorType((5,), F32), TensorType((2, (1 << 24) + 1), F32), "to 16777216, f32"),
        (TensorType((5,), I64), TensorType((3, 9), F32), "other axes than 1"),
        (TensorType((5,), I64), TensorType((2, 9), I32), "declared i32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_scatter_add_needs_a_type_that_can_be(indices: TensorType, out: TensorType, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ScatterAdd(1).check([TensorType((2, 5), F32), indices], out)


def test_a_graph_with_a_declared_type_that_cannot_be_is_refused() -> None:
    builder = GraphBuilder("bad")
    x = builder.input("x", TensorType((2, 5), F32))
    with pytest.raises(ShapeError, match="declared, not inferred"):
        builder.add(ScatterAdd(1), [x, builder.input("i", TensorType((5,), I64))], "y")
    with pytest.raises(ShapeError, match="1 operands where 2"):
        builder.add(ScatterAdd(1), [x], "y", type=TensorType((2, 9), F32))
