"""Random small ONNX image models for tests of passes and quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper
from onnx_models import make_model, random_array

from rlx_edge.ir import Array

BODY = ("conv", "depthwise", "batchnorm", "relu", "clip", "max", "mean", "residual", "scale", "concat", "pad", "there")
"""Layers whose ops all have an int8 form."""
FLOAT_BODY = (*BODY, "limits", "divide", "gelu", "hard_swish", "gate", "twice", "shuffle")
"""With those that passes must rewrite first."""
HEAD = ("image", "flatten_dense", "relu_flatten_dense", "flatten", "global_dense", "softmax", "mean_rows")


class ModelMaker:
    """Appends one layer at a time to an image [1, C, H, W]."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.shape = (1, int(self.rng.integers(1, 5)), int(self.rng.integers(4, 8)), int(self.rng.integers(4, 8)))
        self.input_shape = self.shape
        self.last = "x"

    def constant(self, values: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return name

    def random(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(random_array(shape, int(self.rng.integers(1 << 30))) * np.float32(scale))

    def node(self, op: str, operands: list[str], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], **attributes))
        self.last = name
        return name

    def convolve(self, x: str, c_out: int, groups: int = 1, k: int = 3) -> str:
        c = self.shape[1] // groups
        w = self.random(c_out, c, k, k, scale=(c * k * k) ** -0.5)
        operands = [x, w, *([self.random(c_out)] if self.rng.integers(2) else [])]
        return self.node("Conv", operands, group=groups, pads=[k // 2] * 4)

    def body(self, kind: str) -> None:
        n, c, h, w = self.shape
        x = self.last
        if kind == "conv":
            c_out = int(self.rng.integers(1, 6))
            self.convolve(x, c_out)
            self.shape = (n, c_out, h, w)
        elif kind == "depthwise":
            self.convolve(x, c, groups=c)
        elif kind == "batchnorm":
            rest = [self.constant(np.abs(random_array((c,), i)) + np.float32(0.5)) for i in range(4)]
            self.node("BatchNormalization", [x, *rest])
        elif kind == "relu":
            self.node("Relu", [x])
        elif kind == "clip":
            self.node("Clip", [x, self.constant(np.array(-0.5, np.float32)), self.constant(np.array(2, np.float32))])
        elif kind in ("max", "mean") and min(h, w) >= 3:
            self.node("MaxPool" if kind == "max" else "AveragePool", [x], kernel_shape=[3, 2], pads=[1, 0, 1, 1])
        elif kind == "residual":
            self.node("Relu", [self.node("Add", [self.convolve(x, c, k=1), x])])
        elif kind == "scale":
            self.node("Mul", [self.random(c, 1, 1), x])
        elif kind == "concat":
            self.node("Concat", [x, self.convolve(x, 2)], axis=1)
            self.shape = (n, c + 2, h, w)
        elif kind == "pad":
            self.node("Pad", [x, self.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1], np.int64))])
            self.shape = (n, c, h + 1, w + 1)
        elif kind == "there":
            moved = self.node("Relu", [self.node("Transpose", [x], perm=[0, 2, 3, 1])])
            self.node("Transpose", [moved], perm=[0, 3, 1, 2])

        else:
            self.spelled(kind)

    def spelled(self, kind: str) -> None:
        """What exporters write as several nodes."""
        n, c, h, w = self.shape
        x = self.last
        if kind == "limits":
            self.node("Min", [self.node("Max", [x, self.number(-0.5)]), self.number(1.5)])
        elif kind == "divide":
            self.node("Div", [self.node("Sub", [x, self.number(0.5)]), self.constant(np.full((c, 1, 1), 0.25, "f4"))])
        elif kind == "gelu":
            wide = self.node("Add", [self.node("Erf", [self.node("Div", [x, self.number(2**0.5)])]), self.number(1)])
            self.node("Mul", [self.node("Mul", [x, wide]), self.number(0.5)])
        elif kind == "hard_swish":
            limits = [self.number(0), self.number(6)]
            clipped = self.node("Clip", [self.node("Add", [x, self.number(3)]), *limits])
            self.node("Div", [self.node("Mul", [x, clipped]), self.number(6)])
        elif kind == "gate":
            pooled = self.node("AveragePool", [x], kernel_shape=[h, w])
            self.node("Mul", [x, self.node("Sigmoid", [self.convolve(pooled, c, k=1)])])
        elif kind == "twice":
            self.node("Add", [self.node("Relu", [x]), self.node("Relu", [self.node("Relu", [x])])])
        elif kind == "shuffle" and c % 2 == 0:
            split = self.node("Reshape", [x, self.constant(np.array([n, 2, c // 2, h, w], np.int64))])
            mixed = self.node("Transpose", [split], perm=[0, 2, 1, 3, 4])
            self.node("Reshape", [mixed, self.constant(np.array([n, c, h, w], np.int64))])

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def head(self, kind: str) -> None:
        _, c, h, w = self.shape
        if kind.startswith("relu"):
            self.node("Relu", [self.last])
        if kind in ("flatten_dense", "relu_flatten_dense"):
            flat = self.node("Clip", [self.node("Flatten", [self.last]), self.constant(np.array(-9, np.float32))])
            self.node("Gemm", [flat, self.random(3, c * h * w, scale=0.3), self.random(3)], transB=1)
        elif kind == "flatten":
            self.node("Flatten", [self.last])
        elif kind == "global_dense":
            flat = self.node("Flatten", [self.node("GlobalAveragePool", [self.last])])
            self.node("MatMul", [flat, self.random(c, 4)])
        elif kind == "softmax":
            self.node("Softmax", [self.last], axis=1)
        elif kind == "mean_rows":
            self.node("ReduceMean", [self.last], axes=[3], keepdims=0)

    def model(self) -> onnx.ModelProto:
        return make_model(self.nodes, {"x": self.input_shape}, [self.last], self.constants)


@st.composite
def image_models(draw: st.DrawFn, body: tuple[str, ...] = BODY) -> onnx.ModelProto:
    """One to six layers of these kinds on an image, then a head."""
    maker = ModelMaker(draw(st.integers(0, 1 << 20)))
    for kind in draw(st.lists(st.sampled_from(body), min_size=1, max_size=6)):
        maker.body(kind)
    maker.head(draw(st.sampled_from(HEAD)))
    if not maker.nodes:
        maker.body("relu")
    return maker.model()


def float_models() -> st.SearchStrategy[onnx.ModelProto]:
    return image_models(FLOAT_BODY)
