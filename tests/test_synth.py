"""Weights of a codebook, against onnxruntime's nodes; splines, against a sum of scalars; gradients by differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.errors import DataError
from rlx_edge.ir.ops.attributes import Codebook
from rlx_edge.ir.ops.synth import SplineActivation, SynthMatMul, SynthReconstruct

SEEDS = st.integers(0, 1 << 20)


@FEW
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 256), SEEDS)
def test_codebooks_are_onnxruntimes_gathers(m: int, n: int, blocks: int, size: int, entries: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    x, codebook = (draw.normal(size=shape).astype(np.float32) for shape in ((m, blocks * size), (entries, size)))
    indices = draw.integers(0, entries, (n, blocks), dtype=np.uint8)
    nodes = [
        helper.make_node("Gather", ["c", "i"], ["rows"]),
        helper.make_node("Reshape", ["rows", "shape"], ["transposed"]),
        helper.make_node("Transpose", ["transposed"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    constants = {"i": indices.astype(np.int64), "shape": np.array([n, blocks * size])}
    model = make_model(nodes, {"x": x.shape, "c": codebook.shape}, ["w", "y"], constants)
    weights, product = run_oracle(model, {"x": x, "c": codebook})
    kind = Codebook(size, entries)
    np.testing.assert_array_equal(compute(SynthReconstruct(kind), indices, codebook), weights)
    np.testing.assert_allclose(compute(SynthMatMul(kind), x, indices, codebook), product, rtol=1e-5, atol=1e-5)


def test_an_index_of_no_entry_is_said() -> None:
    indices, codebook = np.array([[0, 3]], np.uint8), np.zeros((3, 2), np.float32)
    with pytest.raises(DataError, match="index 3 into a codebook of 3 entries"):
        compute(SynthReconstruct(Codebook(2, 3)), indices, codebook)


@FEW
@given(st.integers(2, 6), st.floats(-3, 0, width=32), st.floats(0.5, 3, width=32), SEEDS)
def test_a_spline_is_its_sum(count: int, low: float, span: float, seed: int) -> None:
    """Scalar by scalar, as the vocabulary writes it."""
    draw = np.random.default_rng(seed)
    x, coeff = draw.normal(0, 3, (2, 3, 2)).astype(np.float32), draw.normal(size=(2, count)).astype(np.float32)
    high = low + span
    found = compute(SplineActivation(count, low, high), x, coeff)
    inverse = (count - 1) / (high - low)
    for place in np.ndindex(x.shape):
        centers = [low + g * (high - low) / (count - 1) for g in range(count)]
        terms = [math.exp(-(((float(x[place]) - center) * inverse) ** 2)) for center in centers]
        expected = math.fsum(float(c) * term for c, term in zip(coeff[place[-1]], terms, strict=True))
        assert found[place] == pytest.approx(expected, rel=1e-5, abs=1e-6)
