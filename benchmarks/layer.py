"""Instructions of one layer on an emulated board, by the variant that the generator chooses.

python benchmarks/layer.py conv 25x5x64 64 --kernel 1x1
python benchmarks/layer.py depthwise 48x48x16 --kernel 3x3 --stride 2 --board mps2-an385
python benchmarks/layer.py dense 640 128
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rlx_edge import api
from rlx_edge.ir import DType, Graph, GraphBuilder, QuantParams, Requant, TensorType, real_multipliers
from rlx_edge.ir.ops import Layout, QConv2d, QMatMul

X_QUANT, OUT_QUANT = QuantParams.per_tensor(0.05, -3), QuantParams.per_tensor(0.1, 5)


def same_padding(size: tuple[int, int], kernel: tuple[int, int], stride: int) -> tuple[int, int, int, int]:
    """TFLite's SAME, as top, left, bottom, right."""
    total = [max(0, (-(-s // stride) - 1) * stride + k - s) for s, k in zip(size, kernel, strict=True)]
    top, left = total[0] // 2, total[1] // 2
    return top, left, total[0] - top, total[1] - left


def conv_graph(
    shape: tuple[int, int, int], out_c: int, kernel: tuple[int, int], stride: int, depthwise: bool, seed: int = 0
) -> Graph:
    """A convolution of [H, W, C] with random weights and a scale per channel, SAME padding."""
    rng = np.random.default_rng(seed)
    h, w, in_c = shape
    out_c, groups = (in_c, in_c) if depthwise else (out_c, 1)
    builder = GraphBuilder("layer")
    x = builder.input("x", TensorType((1, h, w, in_c), DType.I8, X_QUANT))
    taps = kernel[0] * kernel[1] * in_c // groups
    scales = (0.02 * (1.0 + rng.random(out_c)) / np.sqrt(taps)).astype(np.float32)
    quant = QuantParams(tuple(map(float, scales)), (0,) * out_c, 0)
    values = rng.integers(-127, 128, (out_c, *kernel, in_c // groups)).astype(np.int8)
    op = QConv2d(
        *(kernel, (stride, stride), same_padding((h, w), kernel, stride), (1, 1), groups),
        *(X_QUANT.zero_point, 0, OUT_QUANT.zero_point, real_multipliers(X_QUANT, quant, OUT_QUANT)),
        *(Layout.NHWC, Requant.TFLM, None),
    )
    bias = builder.param("b", rng.integers(-2000, 2001, out_c).astype(np.int32))
    return builder.build([builder.add(op, [x, builder.param("w", values, quant), bias], "y", OUT_QUANT)])


def dense_graph(in_c: int, out_c: int, rows: int = 1, seed: int = 0) -> Graph:
    """A matrix product [rows, in_c] -> [rows, out_c] with random weights and one scale."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder("layer")
    x = builder.input("x", TensorType((rows, in_c), DType.I8, X_QUANT))
    quant = QuantParams.per_tensor(float(np.float32(0.02 / np.sqrt(in_c))), 0)
    values = rng.integers(-127, 128, (in_c, out_c)).astype(np.int8)
    mult = real_multipliers(X_QUANT, quant, OUT_QUANT)
    op = QMatMul(X_QUANT.zero_point, 0, OUT_QUANT.zero_point, mult, Requant.TFLM, None)
    bias = builder.param("b", rng.integers(-2000, 2001, out_c).astype(np.int32))
    return builder.build([builder.add(op, [x, builder.param("w", values, quant), bias], "y", OUT_QUANT)])


def measure(graph: Graph, board: str, target: str | None = None) -> tuple[int, int]:
    """(MACs, instructions) of a graph's steps."""
    with tempfile.TemporaryDirectory(prefix="rlx-edge-layer-") as folder:
        api.build({"layer": graph}, api.load_board(board), Path(folder), target)
        made = api.profile(Path(folder))
    return sum(layer.macs for layer in made.layers), made.instructions


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def main(
    kind: str,
    shape: str,
    out: Annotated[int, typer.Argument()] = 0,
    kernel: str = "1x1",
    stride: int = 1,
    board: str = "mps2-an386",
    target: Annotated[str | None, typer.Option(help="portable, to see the portable kernel")] = None,
) -> None:
    """Print the instructions of a layer, in all and per MAC."""
    sizes, window = _sizes(shape), _sizes(kernel)
    if kind == "dense":
        graph = dense_graph(sizes[0], out)
    else:
        graph = conv_graph((sizes[0], sizes[1], sizes[2]), out, (window[0], window[1]), stride, kind == "depthwise")
    macs, count = measure(graph, board, target)
    print(f"{kind} {shape} -> {out or sizes[-1]}, {kernel}, stride {stride}, {board}: {count:,} instructions, ", end="")
    print(f"{count / macs:.3f} per MAC")


if __name__ == "__main__":
    typer.run(main)
