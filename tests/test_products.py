"""Sums of products against numpy's einsum and convolve, and onnxruntime."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.ir import DType, TensorType
from rlx_edge.ir.ops.products import DotGeneral, LoraMatMul, PartitionedConv


@FEW
@given(st.data())
def test_dot_general_is_einsum(data: st.DataObject) -> None:
    """Axes named by letters: those of a batch, of the sum, and of one side alone, each side in an order of its own."""
    sizes = dict(zip("bcklmn", data.draw(st.permutations([1, 2, 2, 3, 3, 4])), strict=True))
    batch, summed = "bc"[: data.draw(st.integers(0, 2))], "kl"[: data.draw(st.integers(0, 2))]
    left, right = (data.draw(st.permutations([*batch, *summed, own])) for own in "mn")
    at = [tuple(side.index(letter) for letter in letters) for letters in (summed, batch) for side in (left, right)]
    op = DotGeneral(at[0], at[1], at[2], at[3])
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    a, b = (random.normal(size=[sizes[letter] for letter in side]).astype(np.float32) for side in (left, right))
    formula = f"{''.join(left)},{''.join(right)}->{batch}mn"
    np.testing.assert_allclose(compute(op, a, b), np.einsum(formula, a, b), rtol=1e-5, atol=1e-5)
    whole = [random.integers(-(2**31), 2**31, value.shape).astype(np.int32) for value in (a, b)]
    wrapped = np.einsum(formula, *(value.astype(object) for value in whole))
    expected = np.vectorize(lambda v: (int(v) + 2**31) % 2**32 - 2**31, otypes=[np.int64])(wrapped)
    np.testing.assert_array_equal(compute(op, *whole), expected)
    assert op.macs([TensorType(v.shape, DType.F32) for v in (a, b)], TensorType(expected.shape, DType.F32)) == (
        expected.size * np.prod([sizes[letter] for letter in summed], dtype=int)
    )


@FEW
@given(st.integers(0, 1 << 20), st.floats(-4, 4, width=32))
def test_lora_matmul(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    shapes = {"x": (3, 5), "w": (5, 4), "a": (5, 2), "b": (2, 4)}
    inputs = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["xw"]),
        helper.make_node("Gemm", ["x", "a"], ["xa"]),
        helper.make_node("Gemm", ["xa", "b", "xw"], ["y"], alpha=scale),
    ]
    (expected,) = run_oracle(make_model(nodes, shapes, ["y"]), inputs)
    np.testing.assert_allclose(compute(LoraMatMul(scale), *inputs.values()), expected, rtol=1e-4, atol=1e-4)


@FEW
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 64), st.integers(0, 1 << 20))
def test_partitioned_convolution_is_numpys(length: int, taps: int, block: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, response = (random.normal(size=shape).astype(np.float32) for shape in ((2, 3, length), (taps,)))
    expected = np.apply_along_axis(np.convolve, -1, x.astype(np.float64), response)
    np.testing.assert_allclose(compute(PartitionedConv(block), x, response), expected, rtol=1e-5, atol=1e-6)
