"""Fused attention and transformer layers against onnxruntime's fused ones, and against their unfused graphs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from one_op import compute
from onnx import helper
from onnx_models import make_model, run_oracle

from rlx_edge.ir import Array, DType, GraphBuilder, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    LayerNorm,
    MatMul,
    Narrow,
    Op,
    Reshape,
    ShapeError,
    Softmax,
    Transpose,
)
from rlx_edge.ir.ops.fused_layers import FusedAttentionBlock, FusedTransformerLayer
from rlx_edge.reference import run

B, S, E, H, D, F = 2, 5, 6, 2, 4, 7
ADD, MUL = Binary(BinaryOp.ADD), Binary(BinaryOp.MUL)
MASK = np.array([[1, 1, 1, 0, 0], [1, 0.5, 0.25, 1, 0.75]], np.float32)
SHAPES = {
    "hidden": (B, S, E),
    "qkv_w": (E, 3 * H * D),
    "qkv_b": (3 * H * D,),
    "out_w": (H * D, E),
    "out_b": (E,),
    "ln1_g": (E,),
    "ln1_b": (E,),
    "fc1_w": (E, F),
    "fc1_b": (F,),
    "fc2_w": (F, E),
    "fc2_b": (E,),
    "ln2_g": (E,),
    "ln2_b": (E,),
}


def operands(bias: bool, seed: int = 0) -> dict[str, Array]:
    """By name; without a bias, all of them are zero."""
    random = np.random.default_rng(seed)
    made = {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    held = {name: v if bias or not name.endswith("_b") else np.zeros_like(v) for name, v in made.items()}
    return {**held, "mask": MASK}


def onnxruntimes(nodes: list[onnx.NodeProto], values: Mapping[str, Array]) -> Array:
    """Its own attention reads qkv_w, qkv_b and a mask of integers, and comes first."""
    read = ["hidden", "qkv_w", "qkv_b", "keys"]
    sizes = {"num_heads": H, "qkv_hidden_sizes": [H * D] * 3}
    attention = helper.make_node("Attention", read, ["heads"], domain="com.microsoft", **sizes)
    projection = [
        helper.make_node("MatMul", ["heads", "out_w"], ["projected"]),
        helper.make_node("Add", ["projected", "out_b"], ["attended"]),
    ]
    constants = {name: v for name, v in values.items() if name not in ("hidden", "mask")}
    constants["keys"] = (values["mask"] >= 0.5).astype(np.int32)
    every = [attention, *projection, *nodes]
    model = make_model(every, {"hidden": SHAPES["hidden"]}, [every[-1].output[0]], constants)
    return np.asarray(run_oracle(model, {"hidden": values["hidden"]})[0])


class Unfused:
    """A graph that is written op by op."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.values, self.builder = values, GraphBuilder("unfused")
        self.ids = {n: self.builder.input(n, TensorType(v.shape, DType.F32)) for n, v in values.items()}

    def add(self, op: Op, *read: int) -> int:
        return self.builder.add(op, read, "node")

    def run(self, output: int) -> Array:
        (result,) = run(self.builder.build([output]), self.values).values()
        return result

    def heads(self, part: int, width: int) -> int:
        """[B, S, H D] -> [B, H, S, D]; `width` columns of the projection from part * width on."""
        qkv = self.add(ADD, self.add(MatMul(), self.ids["hidden"], self.ids["qkv_w"]), self.ids["qkv_b"])
        split = self.add(Reshape((B, S, H, D)), self.add(Narrow(2, part * width, width), qkv))
        return self.add(Transpose((0, 2, 1, 3)), split)

    def attention(self, *, rope: bool = False) -> int:
        q, k, v = (self.heads(part, H * D) for part in range(3))
        if rope:
            q, k = self.rotated(q), self.rotated(k)
        scores = self.add(MatMul(), q, self.add(Transpose((0, 1, 3, 2)), k))
        scaled = self.add(MUL, scores, self.builder.constant("scale", np.float32([D**-0.5])))
        ignored = np.where(self.values["mask"] < 0.5, -np.inf, 0).astype(np.float32).reshape(B, 1, 1, S)
        weights = self.add(Softmax(-1), self.add(ADD, scaled, self.builder.constant("ignored", ignored)))
        joined = self.add(Reshape((B, S, H * D)), self.add(Transpose((0, 2, 1, 3)), self.add(MatMul(), weights, v)))
        return self.add(ADD, self.add(MatMul(), joined, self.ids["out_w"]), self.ids["out_b"])

    def rotated(self, x: int) -> int:
        """x cos + (x with its halves exchanged, the first one negated) sin, by a matrix that exchanges."""
        half = np.eye(D // 2, dtype=np.float32)
        exchange = np.block([[0 * half, half], [-half, 0 * half]])
        exchanged = self.add(MatMul(), x, self.builder.constant("exchange", exchange))
        tables = [self.builder.constant(n, np.concatenate([self.values[n]] * 2, axis=-1)) for n in ("cos", "sin")]
        return self.add(ADD, self.add(MUL, x, tables[0]), self.add(MUL, exchanged, tables[1]))


def close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_attention_block(bias: bool) -> None:
    held = operands(bias)
    names = ["hidden", "qkv_w", "out_w", "mask", *["qkv_b", "out_b"] * bias]
    found = compute(FusedAttentionBlock(H, D, bias, has_rope=False), *(held[name] for name in names))
    close(found, onnxruntimes([], held))
    graph = Unfused(held)
    close(found, graph.run(graph.attention()))


def test_attention_block_with_rotation() -> None:
    held = operands(bias=True)
    angles = np.outer(np.arange(S), [1.0, 0.01])
    held |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    names = ["hidden", "qkv_w", "out_w", "mask", "qkv_b", "out_b", "cos", "sin"]
    found = compute(FusedAttentionBlock(H, D, has_bias=True, has_rope=True), *(held[name] for name in names))
    graph = Unfused(held)
    close(found, graph.run(graph.attention(rope=True)))


@pytest.mark.parametrize("bias", [False, True])
def test_transformer_layer(bias: bool) -> None:
    held = operands(bias, seed=1)
    op = FusedTransformerLayer(H, D, F, 1e-3, 1e-2, ActivationFn.GELU, bias)
    found = compute(op, *(held[name] for name in op.operand_names))
    node = helper.make_node
    close(
        found,
        onnxruntimes(
            [
                node("Add", ["hidden", "attended"], ["sum1"]),
                node("LayerNormalization", ["sum1", "ln1_g", "ln1_b"], ["h"], epsilon=1e-3),
                node("MatMul", ["h", "fc1_w"], ["m1"]),
                node("BiasGelu", ["m1", "fc1_b"], ["inner"], domain="com.microsoft"),
                node("MatMul", ["inner", "fc2_w"], ["m2"]),
                node("Add", ["m2", "fc2_b"], ["fed"]),
                node("Add", ["h", "fed"], ["sum2"]),
                node("LayerNormalization", ["sum2", "ln2_g", "ln2_b"], ["y"], epsilon=1e-2),
            ],
            held,
        ),
    )
    graph = Unfused(held)
    x = graph.ids
    h = graph.add(LayerNorm(-1, 1e-3), graph.add(ADD, x["hidden"], graph.attention()), x["ln1_g"], x["ln1_b"])
    inner = graph.add(Activation(ActivationFn.GELU), graph.add(ADD, graph.add(MatMul(), h, x["fc1_w"]), x["fc1_b"]))
    fed = graph.add(ADD, graph.add(MatMul(), inner, x["fc2_w"]), x["fc2_b"])
    close(found, graph.run(graph.add(LayerNorm(-1, 1e-2), graph.add(ADD, h, fed), x["ln2_g"], x["ln2_b"])))


def test_a_row_without_keys_is_nan_alone() -> None:
    held = operands(bias=False) | {"mask": np.array([[0] * S, [1] * S], np.float32)}
    found = compute(FusedAttentionBlock(H, D, False, False), *(held[n] for n in ("hidden", "qkv_w", "out_w", "mask")))
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()


def types(op: FusedAttentionBlock | FusedTransformerLayer, **changes: tuple[int, ...]) -> list[TensorType]:
    shapes = SHAPES | {"mask": (B, S), "cos": (S, D // 2), "sin": (S, D // 2)} | changes
    names = ["hidden", "qkv_w", "out_w", "mask", "qkv_b", "out_b", "cos", "sin"]
    if isinstance(op, FusedTransformerLayer):
        names = list(op.operand_names)
    return [TensorType(shapes[name], DType.F32) for name in names]


BLOCK = FusedAttentionBlock(H, D, True, True)
LAYER = FusedTransformerLayer(H, D, F, 1e-5, 1e-5, ActivationFn.GELU, True)


def test_text_counts_and_work() -> None:
    assert BLOCK.display() == "fused_attn(h=2,d=4,bias,rope)"
    assert FusedAttentionBlock(H, D, False, False).display() == "fused_attn(h=2,d=4)"
    assert LAYER.display() == "fused_layer(h=2,d=4,int=7,bias)"
    bare = FusedTransformerLayer(H, D, F, 1e-5, 1e-5, ActivationFn.GELU, False)
    counts = [op.arity.low for op in (BLOCK, FusedAttentionBlock(H, D, True, False), LAYER, bare)]
    assert counts == [8, 6, 14, 8]
    out = TensorType((B, S, E), DType.F32)
    attention = B * S * E * 3 * H * D + 2 * B * H * S * S * D + B * S * H * D * E
    assert BLOCK.macs(types(BLOCK), out) == attention
    assert LAYER.macs(types(LAYER), out) == attention + 2 * B * S * E * F


@pytest.mark.parametrize(
    ("op", "changes", "message"),
    [
        (BLOCK, {"qkv_w": (E, 3 * H * D + 1)}, "qkv_w is"),
        (BLOCK, {"out_w": (H * D + 1, E)}, "8 rows"),
        (BLOCK, {"mask": (B, 1, 1, S)}, "mask is"),
        (BLOCK, {"out_b": (E + 1,)}, "out_b is"),
        (BLOCK, {"sin": (S, D)}, "sin is"),
        (BLOCK, {"hidden": (S, E)}, "rank 3"),
        (LAYER, {"out_w": (H * D, E + 1)}, "does not add"),
        (LAYER, {"fc1_b": (E,)}, "fc1_b is"),
        (LAYER, {"fc2_w": (E, F)}, "fc2_w is"),
        (LAYER, {"ln2_b": (1,)}, "ln2_b is"),
        (FusedAttentionBlock(0, 4, True, True), {}, "0 heads"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit(
    op: FusedAttentionBlock | FusedTransformerLayer, changes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        op.infer(types(op, **changes))
