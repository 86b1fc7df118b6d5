"""Shapes, display strings, operand counts and misfits of attention, recurrent, spectral and synthesized kinds."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_edge.formats.rlx import load_rlx, rlx_bytes
from rlx_edge.ir import DType, GraphBuilder, Shape, TensorType, to_text, verify
from rlx_edge.ir.equal import same_graph
from rlx_edge.ir.ops import Op, ShapeError
from rlx_edge.ir.ops.attention import Attention, AxialRope2d, KvAppend, Rope
from rlx_edge.ir.ops.attributes import Codebook, MaskKind, RopeStyle
from rlx_edge.ir.ops.recurrent import Gru, Lstm, Rnn
from rlx_edge.ir.ops.scans import GatedDeltaNet, Mamba2, SelectiveScan
from rlx_edge.ir.ops.spectral import Fft, FftButterflyStage, FftNorm, FftQ, FftQScale, LogMel, WelchPeaks
from rlx_edge.ir.ops.synth import SplineActivation, SynthMatMul, SynthReconstruct
from rlx_edge.ir.parse import from_text
from rlx_edge.ir.vocabulary import find_kind
from rlx_edge.reference import run

F32, F64, C64, I32, U8 = DType.F32, DType.F64, DType.C64, DType.I32, DType.U8
NONE, CAUSAL, CUSTOM, BIAS = MaskKind.NONE, MaskKind.CAUSAL, MaskKind.CUSTOM, MaskKind.BIAS
BACKWARD, PER_STAGE = FftNorm.BACKWARD, FftQScale.PER_STAGE
Q, K, V = (2, 5, 3, 4), (2, 7, 3, 4), (2, 7, 3, 6)
WIDE, NARROW = (2, 5, 3, 4), (2, 5, 3)

CASES: list[tuple[Op, str, list[Shape], Shape]] = [
    (Attention(3, 4, None, NONE), "attention(h=3,d=4,nomask)", [Q, K, K], Q),
    (
        Attention(3, 4, None, CAUSAL),
        "attention(h=3,d=4,causal)",
        [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)],
        (2, 3, 5, 4),
    ),
    (Attention(1, 4, None, MaskKind.SLIDING_WINDOW, window=8), "attention(h=1,d=4,sw=8)", [(2, 5, 4)] * 3, (2, 5, 4)),
    (Attention(3, 4, 6, CUSTOM), "attention(h=3,d=4),vd=6", [Q, K, V, (2, 7)], (2, 5, 3, 6)),
    (
        Attention(3, 4, None, BIAS, 0.25, 50.0),
        "attention(h=3,d=4,bias),scale=0.25,softcap=50",
        [Q, K, K, (2, 3, 5, 7)],
        Q,
    ),
    (Rope(4, 2), "rope(d=4, n_rot=2, style=NeoX)", [(2, 5, 12), (5, 1), (5, 1)], (2, 5, 12)),
    (Rope(4, 4, RopeStyle.GPT_J), "rope(d=4, n_rot=4, style=GptJ)", [Q, (2, 5, 2), (2, 5, 2)], Q),
    (AxialRope2d(2, 3, 4, 5, 10000.0, 2), "axial_rope2d(2x3,h=5,d=4,θ=10000,r=2)", [(1, 12, 20)], (1, 12, 20)),
    (KvAppend(1, 3), "kv_append(axis=1, pos=3)", [(2, 9, 4), (2, 1, 4)], (2, 4, 4)),
    (Lstm(3, 1, False, False), "lstm(h=3,layers=1,uni)", [(2, 5, 4), (12, 4), (12, 3), (12,)], NARROW),
    (
        Lstm(3, 2, True, True),
        "lstm(h=3,layers=2,bi,carry)",
        [(2, 5, 4), (2 * 12 * (4 + 6),), (48, 3), (48,), (4, 2, 3), (4, 2, 3)],
        (2, 5, 6),
    ),
    (Gru(3, 1, False, False), "gru(h=3,layers=1,uni)", [(2, 5, 4), (9, 4), (9, 3), (9,), (9,)], NARROW),
    (
        Gru(3, 1, True, True),
        "gru(h=3,layers=1,bi,carry)",
        [(2, 5, 4), (72,), (54,), (18,), (18,), (2, 2, 3)],
        (2, 5, 6),
    ),
    (Rnn(3, 1, False, False, True), "rnn(h=3,layers=1,uni,relu)", [(2, 5, 4), (3, 4), (9,), (3,)], NARROW),
    (
        Rnn(3, 1, False, True, False),
        "rnn(h=3,layers=1,uni,tanh,carry)",
        [(2, 5, 4), (3, 4), (3, 3), (3,), (1, 2, 3)],
        NARROW,
    ),
    (SelectiveScan(4), "ssm_scan(n=4)", [NARROW, NARROW, (3, 4), (2, 5, 4), (2, 5, 4)], NARROW),
    (Mamba2(4, 6), "mamba2(p=4,n=6)", [WIDE, NARROW, (3,), (2, 5, 3, 6), (2, 5, 3, 6)], WIDE),
    (GatedDeltaNet(4, False, False), "gated_delta_net(n=4)", [*[WIDE] * 3, NARROW, NARROW], WIDE),
    (GatedDeltaNet(4, False, True), "gated_delta_net(n=4,gpc)", [*[WIDE] * 4, NARROW], WIDE),
    (
        GatedDeltaNet(4, True, True),
        "gated_delta_net(n=4,carry,gpc)",
        [*[WIDE] * 4, NARROW, (2, 3, 4, 4)],
        WIDE,
    ),
    (Fft(True, FftNorm.ORTHO), "fft(inverse=true, norm=Ortho)", [(2, 10)], (2, 10)),
    (FftButterflyStage(2, 8), "fft_butterfly_stage(stage=2, n_fft=8)", [(3, 8, 2), *[(4,)] * 4], (3, 8, 2)),
    (LogMel(), "log_mel()", [(2, 5, 16), (6, 5)], (2, 5, 6)),
    (WelchPeaks(3, 4), "welch_peaks(k=3, n_segments=4)", [(8, 16)], (2, 6)),
    (SplineActivation(8, -2.0, 2.5), "spline_activation(basis=8,grid=[-2,2.5])", [(2, 3), (3, 8)], (2, 3)),
]


@pytest.mark.parametrize(("op", "text", "shapes", "expected"), CASES, ids=[case[1] for case in CASES])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_shapes_and_text(op: Op, text: str, shapes: list[Shape], expected: Shape, dtype: DType) -> None:
    assert op.display() == text
    assert [n for n in range(9) if op.arity.accepts(n)] == [len(shapes)]
    assert op.infer([TensorType(shape, dtype) for shape in shapes]) == (expected, dtype)
    assert find_kind(op.kind_name) is type(op)


INDICES, ENTRIES = TensorType((7, 3), U8), TensorType((16, 4), F32)
OTHERS: list[tuple[Op, str, list[TensorType], TensorType]] = [
    (
        SynthMatMul(Codebook(4, 16)),
        "synth_matmul(codebook:16\N{MULTIPLICATION SIGN}4)",
        [TensorType((2, 12), F32), INDICES, ENTRIES],
        TensorType((2, 7), F32),
    ),
    (SynthReconstruct(Codebook(4, 16)), "synth_reconstruct", [INDICES, ENTRIES], TensorType((12, 7), F32)),
    (
        FftQ(False, BACKWARD, PER_STAGE),
        "fft_q(inverse=false, norm=Backward, scale=PerStage)",
        [TensorType((3, 16), I32)],
        TensorType((3, 16), I32),
    ),
    (Fft(False), "fft(inverse=false, norm=Backward)", [TensorType((3, 5), C64)], TensorType((3, 5), C64)),
]


@pytest.mark.parametrize(("op", "text", "operands", "expected"), OTHERS, ids=[case[1] for case in OTHERS])
def test_kinds_of_other_dtypes(op: Op, text: str, operands: list[TensorType], expected: TensorType) -> None:
    assert (op.display(), op.infer(operands)) == (text, (expected.shape, expected.dtype))


EVERY = [
    *((op, [TensorType(shape, F64) for shape in shapes], expected) for op, _, shapes, expected in CASES),
    *((op, operands, expected.shape) for op, _, operands, expected in OTHERS),
]


@pytest.mark.parametrize(("op", "operands", "expected"), EVERY, ids=[case[0].display() for case in EVERY])
def test_graphs_are_verified_kept_as_file_and_text_and_run(op: Op, operands: list[TensorType], expected: Shape) -> None:
    builder = GraphBuilder("one")
    inputs = [builder.input(f"x{i}", type) for i, type in enumerate(operands)]
    graph = builder.build([builder.add(op, inputs, "y")])
    verify(graph)
    assert same_graph(load_rlx(rlx_bytes(graph)), graph)
    assert same_graph(from_text(to_text(graph), {}), graph)
    value = run(graph, {node.name: np.ones(node.type.shape, node.type.dtype.numpy) for node in graph.inputs})["y"]
    assert (value.shape, value.dtype) == (expected, graph.output_nodes[0].type.dtype.numpy)


def of(*shapes: Shape) -> list[TensorType]:
    return [TensorType(shape, F32) for shape in shapes]


LSTM = Lstm(3, 2, False, True)
MISFITS: list[tuple[Op, list[TensorType], str]] = [
    (Attention(2, 4, None, NONE), of(Q, K, K), r"\[B, S, 2, D\] or \[B, 2, S, D\] is needed"),
    (Attention(3, 4, None, NONE), of(Q, (2, 3, 7, 4), (2, 3, 7, 4)), "q, k, v are"),
    (Attention(2, 4, None, NONE), of(*[(2, 5, 4)] * 3), "q, k, v are"),
    (Attention(3, 5, None, NONE), of(Q, K, K), "heads of 5"),
    (Attention(3, 4, None, NONE), of(Q, (1, 7, 3, 4), K), "another batch"),
    (Attention(3, 4, 5, NONE), of(Q, K, V), "v is"),
    (Attention(3, 4, None, CAUSAL), of(K, Q, Q), "7 queries at the end of 5 keys"),
    (Attention(3, 4, None, NONE, None, 0.0), of(Q, K, K), "attn_logit_softcap 0.0"),
    (Attention(3, 4, None, MaskKind.SLIDING_WINDOW, window=-1), of(Q, K, K), "a window of -1"),
    (Attention(3, 4, None, CUSTOM), of(Q, K, K, (2, 5)), "mask is"),
    (Attention(3, 4, None, BIAS), of(Q, K, K, (2, 7)), "mask is"),
    (Attention(3, 4, None, NONE), [*of(Q, K), TensorType(K, F64)], "different dtypes"),
    (Rope(4, 3), of((2, 5, 12), (5, 1), (5, 1)), "n_rot 3"),
    (Rope(4, 6), of((2, 5, 12), (5, 3), (5, 3)), "n_rot 6"),
    (Rope(5, 2), of((2, 5, 12), (5, 1), (5, 1)), r"H \* 5\]"),
    (Rope(4, 2), of((2, 5, 12), (4, 1), (5, 1)), "cos is"),
    (Rope(4, 2), of((2, 5, 12), (5, 1), (2, 5, 1)), "but sin is"),
    (AxialRope2d(2, 3, 6, 5, 100.0, 1), of((1, 6, 30)), "a multiple of 4"),
    (AxialRope2d(2, 3, 4, 5, 100.0, 2), of((1, 6, 20)), r"shape \[1, 12, 20\]"),
    (AxialRope2d(2, 3, 4, 5, 0.0, 1), of((1, 6, 20)), "theta 0"),
    (KvAppend(3, 0), of((2, 9, 4), (2, 1, 4)), "axis 3"),
    (KvAppend(1, 9), of((2, 9, 4), (2, 1, 4)), "pos 9 on an axis of 9"),
    (KvAppend(1, 0), of((2, 9, 4), (2, 2, 4)), "row is"),
    (KvAppend(1, 0), [*of((2, 9, 4)), TensorType((2, 1, 4), F64)], "another dtype"),
    (Lstm(0, 1, False, False), of((2, 5, 4), (0, 4), (0, 0), (0,)), "1 layers of 0 units"),
    (Lstm(3, 1 << 60, False, False), of((2, 5, 4), (12, 4), (12, 3), (12,)), "w_ih is"),  # At once.
    (Lstm(3, 1, False, False), of((2, 5, 4), (4, 12), (12, 3), (12,)), r"shape \[48\] or \[12, 4\] is needed"),
    (LSTM, of((2, 5, 4), (24, 4), (24, 3), (24,), *[(2, 2, 3)] * 2), r"w_ih .* shape \[84\] is needed"),
    (LSTM, of((2, 5, 4), (84,), (12, 6), (24,), *[(2, 2, 3)] * 2), "w_hh is"),
    (LSTM, of((2, 5, 4), (84,), (24, 3), (12,), *[(2, 2, 3)] * 2), "bias is"),
    (LSTM, of((2, 5, 4), (84,), (24, 3), (24,), (2, 2, 3), (1, 2, 3)), "c0 is"),
    (Gru(3, 1, False, False), of((2, 5, 4), (9, 4), (9, 3), (9,), (3,)), "b_hh is"),
    (Rnn(3, 1, False, False, True), of((5, 4), (3, 4), (3, 3), (3,)), "rank 3"),
    (SelectiveScan(4), of(NARROW, NARROW, (4, 3), (2, 5, 4), (2, 5, 4)), "a is"),
    (SelectiveScan(4), of(NARROW, NARROW, (3, 4), (2, 5, 4), (2, 5, 3)), "c is"),
    (Mamba2(5, 6), of(WIDE, NARROW, (3,), (2, 5, 3, 6), (2, 5, 3, 6)), "x is"),
    (Mamba2(4, 6), of(WIDE, NARROW, (3,), (2, 5, 3, 4), (2, 5, 3, 6)), "b is"),
    (GatedDeltaNet(4, False, True), of(*[WIDE] * 3, NARROW, NARROW), "g is"),
    (GatedDeltaNet(4, True, False), of(*[WIDE] * 3, NARROW, NARROW, (2, 3, 4, 5)), "state is"),
    (Fft(False), [TensorType((2, 4), I32)], "a transform of i32"),
    (Fft(False), of((2, 5)), "as many imaginary ones"),
    (FftQ(False, BACKWARD, PER_STAGE), of((2, 8)), "i32 is needed"),
    (FftQ(False, BACKWARD, PER_STAGE), [TensorType((2, 12), I32)], "a power of two"),
    (FftButterflyStage(3, 8), of((3, 8, 2), *[(4,)] * 4), "stage 3 of the 3"),
    (FftButterflyStage(0, 6), of((3, 6, 2), *[(3,)] * 4), "a power of two"),
    (FftButterflyStage(0, 8), of((3, 8, 2), (4,), (8,), (4,), (4,)), "rev is"),
    (LogMel(), of((2, 5, 16), (6, 8)), r"shape \[6, 5\] is needed"),
    (WelchPeaks(1, 3), of((8, 16)), "a multiple of 3 rows"),
    (WelchPeaks(6, 4), of((8, 16)), "6 peaks of 5 bins"),
    (SynthReconstruct(Codebook(4, 257)), [TensorType((7, 3), U8), *of((257, 4))], "257 entries"),
    (SynthReconstruct(Codebook(4, 16)), of((7, 3), (16, 4)), "u8 is needed"),
    (SynthReconstruct(Codebook(4, 16)), [TensorType((7, 3), U8), *of((4, 16))], "codebook is"),
    (SynthMatMul(Codebook(4, 16)), [*of((2, 8)), TensorType((7, 3), U8), *of((16, 4))], r"weights \[12, 7\]"),
    (SplineActivation(1, 0.0, 1.0), of((2, 3), (3, 1)), "1 basis functions"),
    (SplineActivation(4, 1.0, 1.0), of((2, 3), (3, 4)), "a grid from 1 to 1"),
    (SplineActivation(4, 0.0, 1.0), of((2, 3), (4, 3)), "coeff is"),
]


@pytest.mark.parametrize(("op", "operands", "message"), MISFITS, ids=[f"{m[0].kind_name} {m[2]}" for m in MISFITS])
def test_misfits(op: Op, operands: list[TensorType], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        op.infer(operands)
