"""Normalizations, as no importer makes them, against onnxruntime's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.ir import Array
from rlx_edge.ir.ops import RmsNorm
from rlx_edge.ir.ops.modulation import AdaLayerNorm, AdaNormKind, BatchNormInference, LayerNorm2d

EPS = 1e-3


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(0.5, 2.0, size=shape).astype(np.float32)


def oracle(nodes: list[tuple[str, str, str, dict[str, object]]], opset: int = 23, **inputs: Array) -> Array:
    """What onnxruntime computes with nodes given as kind, inputs, output, attributes; the last one's output."""
    made = [helper.make_node(kind, read.split(), [out], **attributes) for kind, read, out, attributes in nodes]
    shapes = {name: value.shape for name, value in inputs.items()}
    (result,) = run_oracle(make_model(made, shapes, [nodes[-1][2]], opset=opset), inputs)
    return np.asarray(result)


@FEW
@given(st.integers(0, 1 << 20))
def test_batch_norm(seed: int) -> None:
    """ONNX has its channels first, the vocabulary last."""
    x, (gamma, beta, mean), variance = random(seed, 3, 4, 5), random(seed + 1, 3, 5), abs(random(seed + 2, 5))
    first = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    node = ("BatchNormalization", "x g b m v", "y", {"epsilon": EPS})
    expected = oracle([node], x=first, g=gamma, b=beta, m=mean, v=variance)
    found = compute(BatchNormInference(EPS), x, gamma, beta, mean, variance)
    np.testing.assert_allclose(found, np.moveaxis(expected, 1, -1), rtol=2e-5, atol=2e-5)


@FEW
@given(st.integers(0, 1 << 20))
def test_rms_norm_with_an_offset(seed: int) -> None:
    x, (gamma, beta) = random(seed, 2, 3, 5), random(seed + 1, 2, 5)
    nodes = [("RMSNormalization", "x g", "n", {"epsilon": EPS}), ("Add", "n b", "y", {})]
    expected = oracle(nodes, x=x, g=gamma, b=beta)
    np.testing.assert_allclose(compute(RmsNorm(-1, EPS), x, gamma, beta), expected, rtol=1e-5, atol=1e-5)


@FEW
@given(st.integers(0, 1 << 20))
def test_layer_norm_across_channels(seed: int) -> None:
    x, (gamma, beta) = random(seed, 2, 5, 3, 4), random(seed + 1, 2, 5)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    expected = oracle([("LayerNormalization", "x g b", "y", {"epsilon": EPS})], x=last, g=gamma, b=beta)
    found = compute(LayerNorm2d(EPS), x, gamma, beta)
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("with_beta", [False, True])
def test_rms_norm_with_and_without_beta(with_beta: bool) -> None:
    x, gamma, beta = random(1, 2, 3, 6), random(2, 6), random(3, 6)
    nodes: list[tuple[str, str, str, dict[str, object]]] = [("RMSNormalization", "x g", "n", {"epsilon": EPS})]
    given = {"x": x, "g": gamma, **({"b": beta} if with_beta else {})}
    expected = oracle([*nodes, *([("Add", "n b", "y", {})] if with_beta else [])], **given)
    np.testing.assert_allclose(compute(RmsNorm(-1, EPS), *given.values()), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "norm"),
    [
        (AdaNormKind.LAYER_NORM, ("LayerNormalization", "x ones", "n", {"epsilon": EPS})),
        (AdaNormKind.RMS_NORM, ("RMSNormalization", "x ones", "n", {"epsilon": EPS})),
    ],
    ids=lambda value: getattr(value, "value", ""),
)
@pytest.mark.parametrize("shape", [(2, 1, 6), (6,), (2, 3, 6), (1, 3, 6)], ids=str)
def test_ada_layer_norm(
    kind: AdaNormKind, norm: tuple[str, str, str, dict[str, object]], shape: tuple[int, ...]
) -> None:
    x, scale, shift = random(1, 2, 3, 6), random(2, *shape), random(3, *shape)
    ones = np.ones(6, np.float32)
    modulated = [("Mul", "n s", "p", {}), ("Add", "n p", "q", {}), ("Add", "q t", "y", {})]
    expected = oracle([norm, *modulated], x=x, ones=ones, s=scale, t=shift)
    np.testing.assert_allclose(compute(AdaLayerNorm(kind, EPS), x, scale, shift), expected, rtol=1e-4, atol=1e-5)
