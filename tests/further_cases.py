"""An example of each kind that is executed though no edge device runs it: op, types of operands, type of the output.

Types are written as in `test_beyond_shapes`: `2,3` is f32[2, 3].
"""

from __future__ import annotations

from rlx_edge.ir import DType
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Op
from rlx_edge.ir.ops.fused import (
    FusedConvBiasAct,
    FusedMatMulBiasAct,
    FusedMatMulResidual,
    FusedResidualLN,
    FusedResidualRmsNorm,
    FusedSwiGLU,
)
from rlx_edge.ir.ops.fused_layers import FusedAttentionBlock, FusedTransformerLayer
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

FIRST, SECOND, MADE = ChainOperand(Source.INPUT, 0), ChainOperand(Source.INPUT, 1), ChainOperand(Source.STEP, 0)
RELU = ChainStep(Activation(ActivationFn.RELU), (FIRST,))
CHAIN = (RELU, ChainStep(Binary(BinaryOp.MUL), (MADE, SECOND)))
RESIZE = RegionPrologue.RESIZE_NEAREST_2X
NO_MODULI = (0,) * 16

CASES: list[tuple[Op, str, str]] = [
    (StopGradient(), "2,3", "2,3"),
    (Fma(), "2,3 2,3 2,3", "2,3"),
    (GatedResidual(), "2,5,3 2,5,3 2,1,3", "2,5,3"),
    (BatchNormInference(1e-5), "2,5,3 3 3 3 3", "2,5,3"),
    (LayerNorm2d(1e-6), "2,3,4,5 3 3", "2,3,4,5"),
    (AdaLayerNorm(AdaNormKind.LAYER_NORM, 1e-6), "2,5,3 2,1,3 2,1,3", "2,5,3"),
    (DotGeneral((2,), (1,), (0,), (0,)), "2,3,4 2,4,5", "2,3,5"),
    (LoraMatMul(0.5), "2,3 3,4 3,1 1,4", "2,4"),
    (PartitionedConv(4), "2,9 5", "2,13"),
    (Roll((1, -2), (0, 1)), "2,3", "2,3"),
    (Sort(-1, True), "2,3", "2,3"),
    (CumMax(0, True), "2,3", "2,3"),
    (Histogram(4, -1.0, 1.0), "2,3", "4"),
    (ScatterAdd(0), "3,2 i32:3", "5,2"),
    (ResizeNearest2x(), "1,2,3,4", "1,2,6,8"),
    (Interpolate3d((2, 5, 4)), "1,2,3,4,5", "1,2,2,5,4"),
    (Im2Col((2, 2), (1, 1), (0, 1), (1, 1)), "1,3,4,5", "18,12"),
    (ConvTranspose3d((1, 2, 1), (0, 0, 0), (1, 1, 1), (0, 1, 0), 1), "1,2,3,3,3 2,4,1,2,3", "1,4,3,7,5"),
    (ElementwiseRegion(CHAIN, 2, 2, NO_MODULI), "2,3 1", "2,3"),
    (ElementwiseRegion((RELU,), 1, 0, NO_MODULI, RESIZE), "1,2,3,4", "1,2,6,8"),
    (TransformRegion((ChainStep(ResizeNearest2x(), (FIRST,)),), 1), "1,2,3,4", "1,2,6,8"),
    (BatchElementwiseRegion((RELU,), 2, 0, NO_MODULI), "2,3 2,3", "2,2,3"),
    (FusedSwiGLU(DType.F32, True), "2,6", "2,3"),
    (FusedSwiGLU(None, False), "2,6", "2,3"),
    (FusedMatMulBiasAct(ActivationFn.GELU), "2,3 3,4 4", "2,4"),
    (FusedMatMulBiasAct(None), "2,3 3,4 4", "2,4"),
    (FusedMatMulResidual(), "2,3 3,4 2,4", "2,4"),
    (FusedConvBiasAct((1, 1), (1, 1), (0, 0), (1, 1), 1, None, True), "1,2,3,3 4,2,1,1 4 1,4,3,3", "1,4,3,3"),
    (FusedResidualLN(True, 1e-5), "2,3 2,3 3 3 3", "2,3"),
    (FusedResidualRmsNorm(False, 1e-5), "2,3 2,3 3 3", "2,3"),
    (FusedAttentionBlock(2, 4, False, False), "1,5,6 6,24 8,6 1,5", "1,5,6"),
    (
        FusedTransformerLayer(2, 4, 16, 1e-5, 1e-5, ActivationFn.GELU, False),
        "1,5,8 8,24 8,8 8 8,16 16,8 8 1,5",
        "1,5,8",
    ),
]
