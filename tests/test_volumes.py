"""Ops on images and volumes that no importer makes, against onnxruntime."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.ir import Array
from rlx_edge.ir.ops.volumes import ConvTranspose3d, Im2Col, Interpolate3d, ResizeNearest2x

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def resized(x: Array, size: tuple[int, ...]) -> Array:
    """By onnxruntime, nearest."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **NEAREST)
    sizes = np.array([*x.shape[:2], *size], np.int64)
    return np.asarray(run_oracle(make_model([node], {"x": x.shape}, ["y"], {"sizes": sizes}), {"x": x})[0])


def test_resize_is_onnxruntimes() -> None:
    x = random(0, 2, 3, 4, 5)
    np.testing.assert_array_equal(compute(ResizeNearest2x(), x), resized(x, (8, 10)))


@FEW
@given(st.tuples(*[st.integers(1, 9)] * 3), st.tuples(*[st.integers(1, 4)] * 3))
def test_interpolation_is_onnxruntimes(size: tuple[int, int, int], before: tuple[int, int, int]) -> None:
    x = random(0, 2, 1, *before)
    np.testing.assert_array_equal(compute(Interpolate3d(size), x), resized(x, size))


@FEW
@given(st.data())
def test_columns_times_weights_are_a_convolution(data: st.DataObject) -> None:
    """Whole numbers, so that the sums are exact; weights of all windows, channels and places differ."""
    kernel, stride, dilation = (tuple(data.draw(st.integers(1, most)) for _ in range(2)) for most in (3, 3, 2))
    padding = tuple(data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=4).filter(lambda p: len(p) != 3)))
    whole = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    x = whole.integers(-99, 100, (2, 3, 6, 7)).astype(np.float32)
    w = whole.integers(-99, 100, (4, 3, *kernel)).astype(np.float32)
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=stride, dilations=dilation, pads=(padding * 2)[:4], kernel_shape=kernel
    )
    (expected,) = run_oracle(make_model([node], {"x": x.shape, "w": w.shape}, ["y"]), {"x": x, "w": w})
    columns = compute(Im2Col(kernel, stride, padding, dilation), x)
    n, c_out, height, width = expected.shape
    found = (columns @ w.reshape(c_out, -1).T).reshape(n, height, width, c_out).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(found, expected)


@FEW
@given(st.data())
def test_transposed_convolution_is_onnxruntimes(data: st.DataObject) -> None:
    kernel, stride, dilation = ([data.draw(st.integers(1, most)) for _ in range(3)] for most in (3, 3, 2))
    padding = [data.draw(st.integers(0, min(1, (k - 1) * d))) for k, d in zip(kernel, dilation, strict=True)]
    more = [data.draw(st.integers(0, s - 1)) for s in stride]
    groups = data.draw(st.sampled_from([1, 2]))
    x, w = random(data.draw(st.integers(0, 1 << 20)), 2, 4, 3, 2, 3), random(7, 4, 3, *kernel)
    node = helper.make_node(
        "ConvTranspose",
        ["x", "w"],
        ["y"],
        strides=stride,
        dilations=dilation,
        pads=padding * 2,
        output_padding=more,
        group=groups,
    )
    op = ConvTranspose3d(*map(tuple, (stride, padding, dilation, more)), groups)
    (expected,) = run_oracle(make_model([node], {"x": x.shape, "w": w.shape}, ["y"]), {"x": x, "w": w})
    np.testing.assert_allclose(compute(op, x, w), expected, rtol=1e-4, atol=1e-5)
