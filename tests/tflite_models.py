"""Small `.tflite` files for the import tests: one convolution, and the parts to make others from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tflite
from oracles.tflite_writer import Array, OpSpec, TensorSpec, write_model

X = TensorSpec("x", (1, 5, 5, 2), scales=(0.5,), zero_points=(-1,))
WEIGHTS = np.arange(24, dtype=np.int8).reshape(3, 2, 2, 2)
BIAS = np.array([1, 2, 3], np.int32)
W = TensorSpec("w", WEIGHTS.shape, scales=(0.25,), zero_points=(0,), data=WEIGHTS)
B = TensorSpec("b", BIAS.shape, "INT32", scales=(0.125,), zero_points=(0,), data=BIAS)
Y = TensorSpec("y", (1, 3, 3, 3), scales=(0.1,), zero_points=(4,))
CONV: Mapping[str, int] = {"Padding": tflite.Padding.SAME, "StrideH": 2, "StrideW": 2}


def conv_op(**changes: int) -> OpSpec:
    return OpSpec("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", {**CONV, **changes})


def conv_model(**changes: int) -> bytes:
    return write_model([X, W, B, Y], [conv_op(**changes)], [0], [3])


def int8(name: str, *shape: int, scale: float = 0.5, zero: int = 0, data: Array | None = None) -> TensorSpec:
    return TensorSpec(name, shape, scales=(scale,), zero_points=(zero,), data=data)
