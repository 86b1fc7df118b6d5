"""Types of the kinds that are declared only: what operands give, and what operands are refused."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from rlx_edge.errors import UnsupportedError
from rlx_edge.formats.rlx import load_rlx, rlx_bytes
from rlx_edge.ir import DType, GraphBuilder, TensorType, to_text, verify
from rlx_edge.ir.equal import same_graph
from rlx_edge.ir.ops import ActivationFn, Declared, Op, QuantScheme, SchemeKind, ShapeError
from rlx_edge.ir.ops.attributes import Codebook, MaskKind, RopeStyle
from rlx_edge.ir.ops.beyond.complex_numbers import ComplexNormSq, ComplexNormSqBackward, Conjugate
from rlx_edge.ir.ops.beyond.experts import (
    DequantGroupedMatMul,
    DequantGroupedMatMulMlx,
    DequantMoEWeights,
    GroupedMatMul,
)
from rlx_edge.ir.ops.beyond.gradients import (
    ActivationBackward,
    AttentionBackward,
    AttentionBackwardAll,
    AttentionBwdWrt,
    CumsumBackward,
    GatherBackward,
    ReluBackward,
    RopeBackward,
)
from rlx_edge.ir.ops.beyond.learned_gradients import (
    GatedDeltaNetBackward,
    LogMelBackward,
    SplineActivationBackwardCoeff,
    SplineActivationBackwardX,
    SynthBwdWrt,
    SynthMatMulBackward,
)
from rlx_edge.ir.ops.beyond.losses import (
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
    SoftmaxCrossEntropyWithLogits,
)
from rlx_edge.ir.ops.beyond.modulation_gradients import AdaLayerNormBackward, GatedResidualBackward
from rlx_edge.ir.ops.beyond.norm_gradients import (
    BatchNormInferenceBackwardBeta,
    BatchNormInferenceBackwardGamma,
    BatchNormInferenceBackwardInput,
    GroupNormBackwardBeta,
    GroupNormBackwardGamma,
    GroupNormBackwardInput,
    LayerNormBackwardGamma,
    LayerNormBackwardInput,
    RmsNormBackwardBeta,
    RmsNormBackwardGamma,
    RmsNormBackwardInput,
)
from rlx_edge.ir.ops.beyond.random import RngNormal, RngUniform, Sample
from rlx_edge.ir.ops.beyond.scaled import (
    ScaledDequantize,
    ScaledFormat,
    ScaledGroupedMatMul,
    ScaledMatMul,
    ScaledQuantize,
    ScaledQuantScale,
    ScaleLayout,
)
from rlx_edge.ir.ops.beyond.solve import (
    BatchedDenseSolve,
    Cholesky,
    DenseSolve,
    Det,
    Eigh,
    EighBackward,
    EighBatch,
    EighBatchBackward,
    LogDet,
    Qr,
    QrPart,
    Svd,
    SvdPart,
    TriangularSolve,
)
from rlx_edge.ir.ops.beyond.spd import (
    BiMap,
    LogEig,
    LogEigBackward,
    ReEig,
    ReEigBackward,
    SpdBatchNorm,
    SpdBatchNormBackwardG,
    SpdBatchNormBackwardX,
    SpdExpMap,
    SpdExpMapBackward,
    SpdKarcherMean,
    SpdKarcherMeanWeighted,
    SpdLogMap,
    SpdLogMapBackward,
    SpdMatFn,
    SpdMatrixFnBatch,
    SpdMatrixFnBatchBackward,
    SpdParallelTransport,
    SpdParallelTransportBackward,
)
from rlx_edge.ir.ops.beyond.splats import (
    GaussianSplatPrepare,
    GaussianSplatRasterize,
    GaussianSplatRender,
    GaussianSplatRenderBackward,
)
from rlx_edge.ir.ops.beyond.window_gradients import (
    Conv2dBackwardInput,
    Conv2dBackwardWeight,
    Conv3dBackwardInput,
    Conv3dBackwardWeight,
    MaxPool2dBackward,
    MaxPool3dBackward,
)
from rlx_edge.ir.ops.modulation import AdaNormKind
from rlx_edge.ir.parse import from_text
from rlx_edge.ir.vocabulary import FURTHER, all_kinds
from rlx_edge.reference import run

GGUF, MLX = QuantScheme(SchemeKind.GGUF), QuantScheme(SchemeKind.MLX_AFFINE, 64)
FP8, FP4 = ScaledFormat.F8E4M3, ScaledFormat.F4E2M1
WHOLE, BLOCKS = ScaleLayout.PER_TENSOR, ScaleLayout.BLOCK_MX_E8M0
SCENE = "15 15 20 5 15 60 23"
PICTURE = (4, 2, 16, 1.0, 0.5, 8, 0.5, 64)
CONV = ((3, 2), (2, 1), (1, 0), (1, 1), 2)
CONV3 = ((3, 2, 1), (2, 1, 1), (1, 0, 0), (1, 1, 2), 2)

CASES: list[tuple[Op, str, str]] = [
    (Sample(0, 1.0, 1.0, 0), "2,10", "2"),
    (RngNormal(0.0, 1.0, 0, None), "", "2,3"),
    (RngNormal(0.0, 1.0, 0, None), "2,3", "2,3"),
    (RngUniform(0.0, 1.0, 0, 0.5), "2,3", "f16:2,3"),
    (DenseSolve(), "3,3 3", "3"),
    (DenseSolve(), "f64:3,3 f64:3,2", "f64:3,2"),
    (BatchedDenseSolve(), "4,3,3 4,3", "4,3"),
    (BatchedDenseSolve(), "4,3,3 4,3,2", "4,3,2"),
    (Cholesky(), "3,3", "3,3"),
    (TriangularSolve(True, False), "3,3 3,2", "3,2"),
    (Det(), "3,3", ""),
    (LogDet(), "f64:3,3", "f64:"),
    (Svd(SvdPart.U), "5,3", "5,3"),
    (Svd(SvdPart.S), "3,5", "3"),
    (Svd(SvdPart.VT), "3,5", "3,5"),
    (Qr(QrPart.Q), "5,3", "5,3"),
    (Qr(QrPart.R), "3,5", "3,5"),
    (Eigh(), "3,3", "12"),
    (EighBackward(), "12 12", "3,3"),
    (EighBatch(), "4,3,3", "4,12"),
    (EighBatchBackward(), "4,12 4,12", "4,3,3"),
    (ComplexNormSq(), "c64:2,3", "2,3"),
    (Conjugate(), "c64:2,3", "c64:2,3"),
    (ComplexNormSqBackward(), "c64:2,3 2,3", "c64:2,3"),
    (SoftmaxCrossEntropy(), "2,10 2,10", "2"),
    (SoftmaxCrossEntropyWithLogits(), "2,10 2", "2"),
    (SoftmaxCrossEntropyBackward(), "2,10 2 2", "2,10"),
    (ReluBackward(), "2,3 2,3", "2,3"),
    (ActivationBackward(ActivationFn.GELU), "f16:2,3 f16:2,3", "f16:2,3"),
    (CumsumBackward(-1, True), "2,3", "2,3"),
    (GatherBackward(1), "2,4,5,3 i64:4,5", "2,9,3"),
    (RopeBackward(4, 2, RopeStyle.NEOX), "2,3,8 3,1 3,1", "2,3,8"),
    (AttentionBackward(2, 4, MaskKind.NONE, AttentionBwdWrt.QUERY), "1,5,2,4 1,7,2,4 1,7,2,3 1,5,2,3", "1,5,2,4"),
    (AttentionBackward(2, 4, MaskKind.CAUSAL, AttentionBwdWrt.KEY), "1,2,5,4 1,2,7,4 1,2,7,3 1,2,5,3", "1,2,7,4"),
    (AttentionBackward(1, 4, MaskKind.CUSTOM, AttentionBwdWrt.VALUE), "2,5,4 2,7,4 2,7,3 2,5,3 2,7", "2,7,3"),
    (AttentionBackwardAll(2, 4, MaskKind.SLIDING_WINDOW, 3), "2,5,2,4 2,5,2,4 2,5,2,4 2,5,2,4", "6,5,2,4"),
    (LayerNormBackwardInput(-1, 1e-5), "2,5,3 3 2,5,3", "2,5,3"),
    (LayerNormBackwardGamma(1, 1e-5), "2,5,3 2,5,3", "5"),
    (RmsNormBackwardInput(-1, 1e-5), "2,3 3 3 2,3", "2,3"),
    (RmsNormBackwardGamma(-1, 1e-5), "2,3 3 3 2,3", "3"),
    (RmsNormBackwardBeta(0, 1e-5), "2,3 2 2 2,3", "2"),
    (GroupNormBackwardInput(2, 1e-5), "1,4,5 4 4 1,4,5", "1,4,5"),
    (GroupNormBackwardGamma(2, 1e-5), "1,4,5 1,4,5", "4"),
    (GroupNormBackwardBeta(4, 1e-5), "1,4,5,6 1,4,5,6", "4"),
    (BatchNormInferenceBackwardInput(1e-5), "2,3 3 3 3 2,3", "2,3"),
    (BatchNormInferenceBackwardGamma(1e-5), "2,3 3 3 2,3", "3"),
    (BatchNormInferenceBackwardBeta(), "2,5,3", "3"),
    (AdaLayerNormBackward(AdaNormKind.LAYER_NORM, 1e-6), "2,5,3 2,1,3 2,1,3 2,5,3", "42"),
    (GatedResidualBackward(), "2,5,3 2,5,3 2,1,3 2,5,3", "66"),
    (MaxPool2dBackward((3, 2), (2, 2), (1, 0)), "1,2,5,6 1,2,3,3", "1,2,5,6"),
    (MaxPool3dBackward((2, 2, 2), (2, 2, 2), (0, 0, 0)), "1,2,4,5,6 1,2,2,2,3", "1,2,4,5,6"),
    (Conv2dBackwardInput(*CONV), "1,6,3,5 6,2,3,2", "1,4,5,6"),
    (Conv2dBackwardInput(*CONV), "1,6,3,5 6,2,3,2", "1,4,6,6"),
    (Conv2dBackwardWeight(*CONV), "1,4,5,6 1,6,3,5", "6,2,3,2"),
    (Conv3dBackwardInput(*CONV3), "1,6,3,5,2 6,2,3,2,1", "1,4,5,6,2"),
    (Conv3dBackwardWeight(*CONV3), "1,4,5,6,2 1,6,3,5,2", "6,2,3,2,1"),
    (SynthMatMulBackward(Codebook(4, 16), SynthBwdWrt.DX), "2,8 u8:5,2 16,4 2,5", "2,8"),
    (SynthMatMulBackward(Codebook(4, 16), SynthBwdWrt.CODEBOOK), "2,8 u8:5,2 16,4 2,5", "16,4"),
    (SplineActivationBackwardX(6, -1.0, 1.0), "2,5,3 3,6 2,5,3", "2,5,3"),
    (SplineActivationBackwardCoeff(6, -1.0, 1.0), "2,5,3 2,5,3", "3,6"),
    (GatedDeltaNetBackward(4, False, False), "1,3,2,4 1,3,2,4 1,3,2,4 1,3,2 1,3,2 1,3,2,4", "84"),
    (GatedDeltaNetBackward(4, True, True), "1,3,2,4 1,3,2,4 1,3,2,4 1,3,2,4 1,3,2 1,2,4,4 1,3,2,4", "134"),
    (LogMelBackward(), "2,16 5,5 2,5", "2,16"),
    (GroupedMatMul(), "6,4 3,4,5 6", "6,5"),
    (DequantGroupedMatMul(GGUF), "6,256 u8:999 6", "6,5"),
    (DequantGroupedMatMulMlx(MLX), "6,64 u8:999 3,5,2 3,5,2 6", "6,5"),
    (DequantMoEWeights(GGUF), "u8:999", "3,4,5"),
    (ScaledMatMul(FP8, FP8, WHOLE, False), "u8:2,40 u8:3,40 1 1", "2,3"),
    (ScaledMatMul(FP4, FP8, BLOCKS, True), "u8:2,40 u8:3,40 u8:2,2 u8:3,2 3", "2,3"),
    (ScaledGroupedMatMul(FP4, FP4, BLOCKS, False), "u8:6,40 u8:3,5,40 u8:6,2 u8:3,5,2 6", "6,5"),
    (ScaledGroupedMatMul(FP4, FP4, WHOLE, True), "u8:6,40 u8:3,5,40 1 1 6 3,5", "6,5"),
    (ScaledQuantize(FP4, BLOCKS), "f16:2,64 u8:2,2", "u8:2,64"),
    (ScaledQuantScale(FP4, BLOCKS), "2,65", "u8:2,3"),
    (ScaledQuantScale(FP8, WHOLE), "2,65", "1"),
    (ScaledDequantize(FP8, BLOCKS), "u8:2,3 u8:2,1", "2,3"),
    (BiMap(), "2,3 3,3", "2,2"),
    (ReEig(1e-4), "3,3", "3,3"),
    (LogEig(1e-4), "f64:3,3", "f64:3,3"),
    (ReEigBackward(1e-4), "3 3,3 3,3", "3,3"),
    (LogEigBackward(1e-4), "3 3,3 3,3", "3,3"),
    (SpdBatchNorm(1e-4), "4,3,3 3,3 3,3", "4,3,3"),
    (SpdBatchNormBackwardX(1e-4), "3,3 3,3 4,3,3", "4,3,3"),
    (SpdBatchNormBackwardG(1e-4), "4,3,3 3,3 3,3 4,3,3", "3,3"),
    (SpdKarcherMean(10, 1e-6), "4,3,3", "3,3"),
    (SpdKarcherMeanWeighted(10, 1e-6), "4,3,3 4", "3,3"),
    (SpdLogMap(), "3,3 3,3", "3,3"),
    (SpdExpMap(), "3,3 3,3", "3,3"),
    (SpdParallelTransport(), "3,3 3,3 3,3", "3,3"),
    (SpdLogMapBackward(), "3,3 3,3 3,3", "2,3,3"),
    (SpdExpMapBackward(), "3,3 3,3 3,3", "2,3,3"),
    (SpdParallelTransportBackward(), "3,3 3,3 3,3 3,3", "3,3,3"),
    (SpdMatrixFnBatch(SpdMatFn.SQRTM), "4,3,3", "4,3,3"),
    (SpdMatrixFnBatchBackward(SpdMatFn.LOGM), "4,3,3 4,3,3", "4,3,3"),
    (GaussianSplatRender(*PICTURE), SCENE, "32"),
    (GaussianSplatRenderBackward(*PICTURE, 1.0, 1, 10.0), f"{SCENE} 32", "130"),
    (GaussianSplatPrepare(*PICTURE), SCENE, "777"),
    (GaussianSplatRasterize(4, 2, 16, 0.5, 8, 0.5, 64), "777 23", "32"),
]
"""An op, its operands, and its output: `u8:2,3` is u8[2, 3], `2,3` is f32[2, 3]."""

ELEMENTWISE = (ComplexNormSq, Conjugate, CumsumBackward, BatchNormInferenceBackwardBeta, ScaledQuantScale)
PACKED: tuple[tuple[type[Op], int], ...] = (
    *((DequantGroupedMatMul, 1), (DequantGroupedMatMulMlx, 1), (DequantMoEWeights, 0)),
    (AttentionBackward, 4),
)
ANY_RANK: dict[tuple[type[Op], int], int] = {
    **{(kind, 0): 99 for kind in ELEMENTWISE},
    **dict.fromkeys(PACKED, 99),
    **{(DenseSolve, 1): 1, (BatchedDenseSolve, 1): 2},
}
"""Operands that may have another axis, up to that rank: any tensors, packed weights and masks, right-hand sides."""

ANY_DTYPE = (RngNormal, RngUniform)
"""Kinds whose operand only lends its shape."""


def parse(text: str) -> TensorType:
    dtype, _, shape = text.rpartition(":")
    return TensorType(tuple(int(size) for size in shape.split(",") if size), DType(dtype or "f32"))


def settle(op: Op, operands: list[TensorType], out: TensorType) -> TensorType:
    """The output's type, as `verify` settles it. Raises ShapeError."""
    if isinstance(op, Declared):
        op.check(operands, out)
        return out
    return TensorType(*op.infer(operands))


IDS = [f"{op.display()} {operands}" for op, operands, _ in CASES]


@pytest.mark.parametrize(("op", "operands", "out"), CASES, ids=IDS)
def test_outputs(op: Op, operands: str, out: str) -> None:
    types = [parse(text) for text in operands.split()]
    assert op.arity.accepts(len(types))
    assert settle(op, types, parse(out)) == parse(out)


@pytest.mark.parametrize(("op", "operands", "out"), CASES, ids=IDS)
def test_graphs_are_verified_and_kept_as_file_and_text_but_not_run(op: Op, operands: str, out: str) -> None:
    builder = GraphBuilder("one")
    inputs = [builder.input(f"x{i}", parse(text)) for i, text in enumerate(operands.split())]
    graph = builder.build([builder.add(op, inputs, "y", type=parse(out))])
    verify(graph)
    assert same_graph(load_rlx(rlx_bytes(graph)), graph)
    assert same_graph(from_text(to_text(graph), {}), graph)
    with pytest.raises(UnsupportedError, match=op.kind_name):
        run(graph, {node.name: np.ones(node.type.shape, node.type.dtype.numpy) for node in graph.inputs})


@pytest.mark.parametrize(("op", "operands", "out"), CASES, ids=IDS)
def test_an_operand_of_another_rank_or_dtype_is_refused(op: Op, operands: str, out: str) -> None:
    types = [parse(text) for text in operands.split()]
    for place, operand in enumerate(types):
        longer, odd = TensorType((*operand.shape, 7), operand.dtype), TensorType(operand.shape, DType.I16)
        may_grow = len(operand.shape) <= ANY_RANK.get((type(op), place), -1)
        for other, fits in ((longer, may_grow), (odd, isinstance(op, ANY_DTYPE))):
            changed = [*types[:place], other, *types[place + 1 :]]
            with nullcontext() if fits else pytest.raises(ShapeError):
                settle(op, changed, parse(out))


@pytest.mark.parametrize(("op", "operands", "out"), [case for case in CASES if isinstance(case[0], Declared)])
def test_a_declared_output_that_cannot_be_is_refused(op: Declared, operands: str, out: str) -> None:
    types, declared = [parse(text) for text in operands.split()], parse(out)
    assert types or isinstance(op, RngNormal)
    for other in (TensorType((*declared.shape, 7), declared.dtype), TensorType(declared.shape, DType.I16)):
        if types or other.dtype is DType.I16:
            with pytest.raises(ShapeError):
                op.check(types, other)


MISFITS: list[tuple[Op, str, str, str]] = [
    (DenseSolve(), "3,4 3", "", "square matrices are needed"),
    (DenseSolve(), "3,3 4", "", r"\[3\] or \[3, K\] is needed"),
    (BatchedDenseSolve(), "4,3,3 4,2", "", r"\[B, N\] or \[B, N, K\]"),
    (EighBackward(), "11 11", "", "11 packed numbers are not n"),
    (SoftmaxCrossEntropyWithLogits(), "2,10 i32:2", "", "f32 is needed"),
    (ReluBackward(), "2,3 3,2", "", "must be of one type"),
    (CumsumBackward(2, False), "2,3", "", "axis 2 of a tensor of rank 2"),
    (GatherBackward(0), "4,3 i64:4", "9,2", r"shape \[4, 2\] is needed"),
    (RopeBackward(4, 3, RopeStyle.GPT_J), "2,8 2,2 2,2", "", "an even number"),
    (RopeBackward(4, 4, RopeStyle.GPT_J), "2,6 2,2 2,2", "", "heads of 4 elements"),
    (AttentionBackward(3, 4, MaskKind.NONE, AttentionBwdWrt.KEY), "1,5,2,4 1,5,2,4 1,5,2,4 1,5,2,4", "", "q is"),
    (AttentionBackwardAll(2, 4, MaskKind.NONE), "1,5,2,4 1,7,2,4 1,7,2,4 1,5,2,4", "", "must be of one type"),
    (GroupNormBackwardGamma(3, 1e-5), "1,4,5 1,4,5", "", "3 groups"),
    (MaxPool2dBackward((9, 2), (2, 2), (1, 0)), "1,2,5,6 1,2,3,3", "", "a window of 9 over 5 elements of axis 2"),
    (MaxPool2dBackward((3,), (2, 2), (1, 0)), "1,2,5,6 1,2,3,3", "", "2 numbers each"),
    (MaxPool2dBackward((3, 2), (0, 2), (1, 0)), "1,2,5,6 1,2,3,3", "", "must be positive"),
    (Conv2dBackwardInput(*CONV), "1,6,3,5 6,2,3,2", "1,4,9,6", r"dy is .* \[1, 6, 5, 5\] is needed"),
    (Conv2dBackwardWeight(*CONV[:4], 4), "1,4,5,6 1,6,3,5", "", "in 4 groups"),
    (SynthMatMulBackward(Codebook(3, 16), SynthBwdWrt.DX), "2,8 u8:5,2 16,4 2,5", "", "whole entries of 3"),
    (GatedDeltaNetBackward(5, False, False), "1,3,2,4 1,3,2,4 1,3,2,4 1,3,2 1,3,2 1,3,2,4", "", "last axis of 5"),
    (DequantGroupedMatMul(MLX), "6,256 u8:999 6", "6,5", r"MlxAffine\(64\); Gguf is needed"),
    (DequantGroupedMatMulMlx(MLX), "6,64 u8:999 3,5,7 3,5,7 6", "", "7 groups of 64 weights"),
    (ScaledMatMul(FP4, FP4, BLOCKS, False), "u8:2,40 u8:3,40 u8:2,1 u8:3,2", "", r"shape \[2, 2\] is needed"),
    (GaussianSplatRender(0, *PICTURE[1:]), SCENE, "", "a picture of 0 x 2"),
    (GaussianSplatRender(*PICTURE), "15 15 20 5 15 61 23", "", "not colors of 5 Gaussians"),
]


@pytest.mark.parametrize(
    ("op", "operands", "out", "message"), MISFITS, ids=[f"{m[0].kind_name} {m[3]}" for m in MISFITS]
)
def test_misfits(op: Op, operands: str, out: str, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        settle(op, [parse(text) for text in operands.split()], parse(out))


def test_every_kind_is_in_the_table() -> None:
    beyond = {kind for kind in all_kinds().values() if ".beyond." in kind.__module__}
    assert any(module.startswith("beyond.") for module in FURTHER)
    assert {type(op) for op, _, _ in CASES} == beyond
