"""Functions that files spell out are found in every form of the tables, and mean what the forms mean."""

from __future__ import annotations

import numpy as np
import pytest
from double import run_double
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.ir import DType, Graph, GraphBuilder, TensorType, to_text
from rlx_edge.ir.ops import Activation, ActivationFn, Binary, BinaryOp, Clamp, LayerNorm, Leaf, Op, RmsNorm, Softmax
from rlx_edge.passes import activation_rules, norm_rules
from rlx_edge.passes.activation_rules import recognize_activations
from rlx_edge.passes.norm_rules import recognize_norms
from rlx_edge.passes.pattern import Apply, Bind, Either, Number, Pattern, Scalar, Tensor
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.recognize import Rule

SHAPE = (2, 3, 8)
ALPHA = float(np.float32(0.1))
EPS = float(np.float32(1e-3))


class Speller:
    """Builds a graph that is one form of a pattern, picked at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = GraphBuilder("spelled")
        self.names: dict[str, int] = {}

    def graph(self, pattern: Pattern) -> Graph:
        self.names["x"] = self.builder.input("x", TensorType(SHAPE, DType.F32))
        output = self.spell(pattern)
        return self.builder.build([output])

    def constant(self, value: float, shape: tuple[int, ...] | None = None) -> int:
        shape = [(), (1,), (1, 1, 1)][int(self.rng.integers(3))] if shape is None else shape
        return self.builder.param("c", np.full(shape, value, np.float32))

    def spell(self, pattern: Pattern) -> int:
        if isinstance(pattern, Tensor):
            if pattern.name not in self.names:
                values = self.rng.uniform(0.5, 2.0, SHAPE[-1:]).astype(np.float32)
                self.names[pattern.name] = self.builder.param(pattern.name, values)
            return self.names[pattern.name]
        if isinstance(pattern, Number):
            vector = SHAPE[-1:] if pattern.value in (0.0, 1.0) and self._under_norm else None
            return self.constant(pattern.value, vector)
        if isinstance(pattern, Scalar):
            return self.constant({"eps": EPS, "most": 20.0, "alpha": ALPHA}[pattern.name])
        if isinstance(pattern, Either):
            return self.spell(pattern.forms[int(self.rng.integers(len(pattern.forms)))])
        return self.apply(pattern)

    _under_norm = False

    def apply(self, pattern: Apply) -> int:
        self._under_norm = pattern.kind in (LayerNorm, RmsNorm)
        operands = [self.spell(operand) for operand in pattern.operands]
        self._under_norm = False
        if pattern.commutes and self.rng.random() < 0.5:
            operands.reverse()
        bound = {"axes": (2,), "axis": 2, "eps": EPS}
        attributes = {name: bound[a.name] if isinstance(a, Bind) else a for name, a in pattern.attributes}
        return self.builder.add(pattern.kind(**attributes), operands, "t", sources=("source",))


def only_op(graph: Graph) -> Op:
    (node,) = (node for node in graph.nodes if not isinstance(node.op, Leaf))
    return node.op


EXPECTED: dict[str, Op] = {
    "hard sigmoid": Activation(ActivationFn.HARD_SIGMOID),
    "hard swish": Activation(ActivationFn.HARD_SWISH),
    "sigmoid": Activation(ActivationFn.SIGMOID),
    "silu": Activation(ActivationFn.SILU),
    "softplus": Activation(ActivationFn.SOFTPLUS),
    "softplus with a threshold": Activation(ActivationFn.SOFTPLUS),
    "mish": Activation(ActivationFn.MISH),
    "log sigmoid": Activation(ActivationFn.LOG_SIGMOID),
    "gelu": Activation(ActivationFn.GELU),
    "gelu by tanh": Activation(ActivationFn.GELU_APPROX),
    "softsign": Activation(ActivationFn.SOFTSIGN),
    "absolute value": Activation(ActivationFn.ABS),
    "leaky relu by max": Activation(ActivationFn.LEAKY_RELU, ALPHA),
    "leaky relu": Activation(ActivationFn.LEAKY_RELU, ALPHA),
    "leaky relu by a negative slope": Activation(ActivationFn.LEAKY_RELU, -ALPHA),
    "reciprocal root": Activation(ActivationFn.RSQRT),
    "root": Activation(ActivationFn.SQRT),
    "reciprocal": Activation(ActivationFn.RECIP),
    "square": Binary(BinaryOp.MUL),
    "layer norm": LayerNorm(2, EPS),
    "layer norm as one factor and one offset": LayerNorm(2, EPS),
    "layer norm, gamma": LayerNorm(2, EPS),
    "layer norm, beta": LayerNorm(2, EPS),
    "rms norm": RmsNorm(2, EPS),
    "rms norm, gamma": RmsNorm(2, EPS),
    "softmax": Softmax(2),
    "softmax without its maximum": Softmax(2),
}
POSITIVE = ("reciprocal root", "root", "reciprocal")
RULES = (*activation_rules.RULES, *norm_rules.RULES)


def test_every_rule_has_its_op_here() -> None:
    assert [rule.name for rule in RULES] == list(EXPECTED)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@settings(max_examples=settings.default.max_examples // 4)  # For each rule.
@given(seed=st.integers(0, 1 << 20))
def test_every_form_of_a_rule_is_found(rule: Rule, seed: int) -> None:
    before = Speller(seed).graph(rule.pattern)
    after = recognize_norms(recognize_activations(before))
    assert only_op(after) == EXPECTED[rule.name], to_text(before)
    assert after.output_nodes[0].name == before.output_nodes[0].name
    assert after.output_nodes[0].sources == before.output_nodes[0].sources
    x = np.random.default_rng(seed).uniform(0.1 if rule.name in POSITIVE else -5, 5, SHAPE).astype(np.float32)
    (expected,), (found,) = (list(run_double(graph, {"x": x}).values()) for graph in (before, after))
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-6, atol=2e-6)


def chain(*steps: Op | tuple[Op, float | str]) -> Graph:
    """Ops on x, one after the other; the second operand of a Binary is a constant, or x itself."""
    builder = GraphBuilder("chain")
    x = last = builder.input("x", TensorType(SHAPE, DType.F32))
    for step in steps:
        if isinstance(step, Op):
            last = builder.add(step, [last], "t")
        else:
            second = x if step[1] == "x" else builder.param("c", np.array(step[1], np.float32))
            last = builder.add(step[0], [last, second], "t")
    return builder.build([last])


ADD, MUL, DIV, MAX, MIN = (Binary(fn) for fn in (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MAX, BinaryOp.MIN))
ERF, SIGMOID = Activation(ActivationFn.ERF), Activation(ActivationFn.SIGMOID)


@pytest.mark.parametrize(
    ("graph", "fn"),
    [
        # PyTorch's Hardswish up to opset 13, MobileNetV3 from tf2onnx (relu6 by Min and Max, then 1/6).
        (chain((ADD, 3.0), Clamp(0.0, 6.0), (MUL, "x"), (DIV, 6.0)), ActivationFn.HARD_SWISH),
        (chain((ADD, 3.0), (MAX, 0.0), (MIN, 6.0), (MUL, 0.16666667), (MUL, "x")), ActivationFn.HARD_SWISH),
        # PyTorch's GELU up to opset 19.
        (chain((DIV, 1.4142135), ERF, (ADD, 1.0), (MUL, "x"), (MUL, 0.5)), ActivationFn.GELU),
        # SiLU, exported everywhere as Sigmoid and Mul.
        (chain(SIGMOID, (MUL, "x")), ActivationFn.SILU),
        # A leaky ReLU written with numpy's maximum.
        (chain((MUL, 0.01), (MAX, "x")), ActivationFn.LEAKY_RELU),
    ],
)
def test_what_exporters_write(graph: Graph, fn: ActivationFn) -> None:
    op = only_op(prepare(graph))
    assert isinstance(op, Activation) and op.fn is fn


@pytest.mark.parametrize(
    "graph",
    [
        chain((ADD, 3.0), Clamp(0.0, 6.0), (MUL, "x"), (DIV, 6.001)),
        chain((ADD, 3.0), Clamp(0.0, 5.0), (MUL, "x"), (DIV, 6.0)),
        chain((MUL, 1.5), (MAX, "x")),  # For x > 0 the maximum is 1.5 * x.
        chain((DIV, 1.41), ERF, (ADD, 1.0), (MUL, "x"), (MUL, 0.5)),
        chain((MUL, 1.702), SIGMOID, (MUL, "x")),  # An approximation of GELU that the vocabulary does not have.
    ],
)
def test_near_misses_stay_what_they_are(graph: Graph) -> None:
    assert recognize_activations(graph) is graph


def test_a_constant_that_differs_from_channel_to_channel_is_no_number() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType(SHAPE, DType.F32))
    alphas = builder.param("a", np.linspace(0.1, 0.2, 8, dtype=np.float32))
    graph = builder.build([builder.add(MAX, [x, builder.add(MUL, [x, alphas], "scaled")], "y")])
    assert recognize_activations(graph) is graph


def test_constants_that_grow_the_result_are_no_numbers() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType((3,), DType.F32))
    half = builder.param("half", np.full((2, 1), 0.5, np.float32))
    graph = builder.build([builder.add(Binary(BinaryOp.POW), [x, half], "y")])
    assert prepare(graph).output_nodes[0].type == graph.output_nodes[0].type


def test_a_value_inside_of_a_pattern_that_is_an_output_stays() -> None:
    builder = GraphBuilder("g")
    x = builder.input("x", TensorType(SHAPE, DType.F32))
    gate = builder.add(SIGMOID, [x], "gate")
    graph = builder.build([builder.add(MUL, [x, gate], "y"), gate])
    after = recognize_activations(graph)
    assert [node.op for node in after.output_nodes] == [Activation(ActivationFn.SILU), SIGMOID]
