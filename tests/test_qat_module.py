"""Modules compute what their int8 models compute, whatever ops a model has, and any loop can train them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx_models import make_model, random_array
from random_models import float_models

from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.data import Data, load_data
from rlx_edge.errors import EdgeError, ModelError, UnsupportedError
from rlx_edge.formats.load import load
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Requant, TensorType, with_batch
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Conv,
    Gather,
    Pad,
    PadMode,
    QConv2d,
    QMatMul,
    Reverse,
    Slice,
    Tile,
)
from rlx_edge.qat import convert, prepare
from rlx_edge.quant.batches import batches
from rlx_edge.quant.quality import quantized_inputs, real_values
from rlx_edge.quant.quantize import build_int8
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.widths import everywhere
from rlx_edge.reference import fast_integer, run

torch = pytest.importorskip("torch", reason="torch is an extra: make test-qat")

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def digits() -> tuple[Graph, Data, Data]:
    graph = load(DIGITS / "digits.onnx")
    names = ("digits_calibration.npz", "digits_test.npz")
    return graph, *(load_data(DIGITS / name, graph) for name in names)


def outputs(module: Any, data: Data) -> Array:
    with torch.no_grad():
        made = module(*(torch.from_numpy(values) for values in data.inputs.values()))
    return np.asarray(made.numpy()).reshape(len(data), -1)


def int8_outputs(graph: Graph, data: Data) -> Array:
    """The first output's real values, by the exact integers."""
    found = [
        real_values(batch.graphs[0], fast_integer.run_all(batch.graphs[0], quantized_inputs(graph, batch.inputs)))
        for batch in batches(data, graph, most=256)
    ]
    name = graph.output_nodes[0].name
    return np.concatenate([values[name].reshape(-1, graph.output_nodes[0].type.elements) for values in found])


def step_of(graph: Graph) -> float:
    quant = graph.output_nodes[0].type.quant
    assert quant is not None
    return quant.scale


@settings(max_examples=25)
@given(float_models(), st.sampled_from([8, 4, 3, 2]))
def test_random_models_have_the_int8_models_codes(model: onnx.ModelProto, bits: int) -> None:
    graph = load_onnx(model.SerializeToString())
    data = Data({n.name: random_array((24, *n.type.shape[1:]), 9) for n in graph.inputs})
    module = prepare(graph, data, Recipe(weights=everywhere(bits, "nearest")))
    int8 = convert(module)
    wanted, found = int8_outputs(int8, data), outputs(module, data)
    steps = np.abs(found - wanted) / step_of(int8)
    assert np.mean(steps > 0.01) < 0.02, "codes differ"
    assert steps.max() < 3.01


FUNCTIONS = [fn for fn in ActivationFn if fn not in (ActivationFn.TABLE, ActivationFn.LEAKY_RELU)]


@pytest.mark.parametrize("fn", [*FUNCTIONS, ActivationFn.LEAKY_RELU], ids=lambda fn: fn.value)
def test_functions_have_the_int8_tables_codes_and_a_gradient(fn: ActivationFn) -> None:
    builder = GraphBuilder("one")
    x = builder.input("x", TensorType((1, 40), DType.F32))
    alpha = 0.2 if fn is ActivationFn.LEAKY_RELU else None
    graph = builder.build([builder.add(Activation(fn, alpha), [x], "y")])
    values = random_array((16, 40), 3)
    if fn in (ActivationFn.LOG, ActivationFn.SQRT, ActivationFn.RSQRT, ActivationFn.RECIP):
        values = np.abs(values) + np.float32(0.5)
    data = Data({"x": values})
    module = prepare(graph, data, Recipe())
    np.testing.assert_allclose(outputs(module, data), int8_outputs(convert(module), data), rtol=1e-5, atol=1e-6)
    held = torch.tensor(values, requires_grad=True)
    module(held).sum().backward()
    assert torch.isfinite(held.grad).all()


def single(op: str, *shapes: tuple[int, ...], constants: dict[str, Array] | None = None, **attributes: Any) -> Graph:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op, [*names, *(constants or {})], ["y"], **attributes)
    return load_onnx(make_model([node], dict(zip(names, shapes, strict=True)), ["y"], constants).SerializeToString())


OPS: list[Graph] = [
    single("Add", (1, 6), (1, 6)),
    single("Sub", (1, 6), (1, 6)),
    single("Mul", (1, 6), (1, 6)),
    single("Softmax", (1, 5, 2, 3), axis=1),
    single("Concat", (1, 2, 4, 4), (1, 3, 4, 4), axis=1),
    single("Transpose", (1, 2, 3, 4), perm=[0, 2, 3, 1]),
    single("ReduceMean", (1, 2, 3, 4), axes=[2, 3], keepdims=1),
    single("AveragePool", (1, 2, 5, 5), kernel_shape=[2, 2], strides=[2, 2]),
    single("AveragePool", (1, 2, 5, 5), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    single("AveragePool", (1, 2, 5, 5), kernel_shape=[3, 3], pads=[1, 0, 1, 1]),
    single("MaxPool", (1, 2, 5, 5), kernel_shape=[3, 3], pads=[1, 0, 1, 1]),
    single("Pad", (1, 2, 4), constants={"p": np.array([0, 0, 1, 0, 0, 2], np.int64), "v": np.float32(0.5)}),
    single("Clip", (1, 7), constants={"low": np.float32(-0.5), "high": np.float32(0.75)}),
    single("Conv", (1, 3, 7, 6), constants={"w": random_array((4, 3, 3, 2))}, pads=[1, 0, 2, 1], strides=[2, 1]),
    single("Conv", (1, 4, 7, 6), constants={"w": random_array((8, 1, 3, 3))}, group=4, dilations=[2, 2]),
    single("MatMul", (1, 4, 6), constants={"w": random_array((6, 5))}),
]


@pytest.mark.parametrize("graph", OPS, ids=lambda graph: graph.nodes[-1].op.kind_name)
def test_each_op_has_the_int8_ops_codes(graph: Graph) -> None:
    data = Data({n.name: random_array((64, *n.type.shape[1:]), i) for i, n in enumerate(graph.inputs)})
    module = prepare(graph, data, Recipe(weights=everywhere(4)))
    int8 = convert(module)
    steps = np.abs(outputs(module, data) - int8_outputs(int8, data)) / step_of(int8)
    assert np.mean(steps > 0.01) < 0.002
    assert steps.max() < 1.01


def test_what_cannot_be_trained_is_named(digits: tuple[Graph, Data, Data]) -> None:
    sums = single("CumSum", (1, 6), constants={"axis": np.array(1, np.int64)})
    with pytest.raises(UnsupportedError, match="Cumsum"):
        prepare(sums, Data({"x0": random_array((8, 6))}))
    across = single("Softmax", (1, 3), axis=0)
    with pytest.raises(ModelError, match="across samples"):
        prepare(across, Data({"x0": random_array((8, 3))}), Recipe())
    with pytest.raises(EdgeError, match=r"prepare\(graph, data\)"):
        prepare(digits[0])


def test_moves_are_trained_through() -> None:
    """Slices, repetitions and what gathers and tiles are made of: the module has the int8 model's very outputs."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("moves")
    x = builder.input("x", TensorType((1, 4, 6, 6), DType.F32))
    weights = builder.param("w", rng.normal(size=(4, 4, 3, 3)).astype(np.float32))
    node = builder.add(Conv((3, 3), (1, 1), (1, 1), (1, 1), 1), [x, weights], "layer")
    rows = builder.param("rows", np.array([5, 3, 1, 1], np.int32))
    node = builder.add(Gather(2), [node, rows], "picked")
    mirrored = Pad(((0, 0), (0, 0), (1, 0), (0, 2)), PadMode.REFLECT)
    for op in (Slice(3, 5, 3, -2), Reverse((2,)), Tile((1, 1, 2, 1)), mirrored):
        node = builder.add(op, [node], op.kind_name.lower())
    graph = builder.build([node])
    values = rng.normal(size=(8, 4, 6, 6)).astype(np.float32)
    module = prepare(graph, Data({"x": values}))
    found = module.eval()(torch.from_numpy(values)).detach().numpy()
    int8 = convert(module)
    batch = with_batch(int8, 8)
    codes = fast_integer.run_all(batch, quantized_inputs(batch, {"x": values}))
    np.testing.assert_array_equal(found, real_values(batch, codes)[int8.output_nodes[0].name])


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_any_loop_trains_and_the_result_is_exact(
    digits: tuple[Graph, Data, Data], optimizer: str, device: str, tmp_path: Path
) -> None:
    """A plain loop on labels, with 3-bit weights; then the module's forward has int8's top-1, and int8 on reference and
    host the same bytes."""
    graph, calibration, test = digits
    module = prepare(graph, calibration, Recipe(weights=everywhere(3, "nearest"))).to(device)
    (x,) = (torch.from_numpy(values).to(device) for values in calibration.inputs.values())
    assert calibration.labels is not None
    labels = torch.from_numpy(calibration.labels.astype(np.int64)).to(device)
    steps = getattr(torch.optim, optimizer)(module.parameters(), lr={"SGD": 1e-3, "AdamW": 1e-3}[optimizer])
    losses = []
    for _ in range(8):
        steps.zero_grad()
        loss = torch.nn.functional.nll_loss(torch.log(module(x) + 1e-3), labels)
        loss.backward()
        steps.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    int8 = convert(module)
    assert all(
        int8.nodes[node.inputs[1]].type.dtype is DType.I4
        for node in int8.nodes
        if isinstance(node.op, QConv2d | QMatMul)
    )
    found, wanted = outputs(module.cpu(), test), int8_outputs(int8, test)
    assert np.mean(found.argmax(1) == wanted.argmax(1)) >= 0.999
    if optimizer == "AdamW":  # Once is enough for the compiler.
        (bundled,) = generate({"digits": int8}, tmp_path / "bundle")
        codes = quantized_inputs(int8, test.inputs)
        few = {name: values[:32] for name, values in codes.items()}
        (host,) = HostModel(bundled).run(few).values()
        reference = [next(iter(run(int8, {n: v[i : i + 1] for n, v in few.items()}).values())) for i in range(32)]
        np.testing.assert_array_equal(host, np.concatenate(reference).reshape(host.shape))


@pytest.mark.parametrize("rule", [Requant.ONNX, Requant.RLX, Requant.TFLITE_REF], ids=lambda rule: rule.value)
def test_other_rules(digits: tuple[Graph, Data, Data], rule: Requant) -> None:
    """Rules that are not TensorFlow Lite's have other ties in mean pools than the module: single codes differ."""
    graph, calibration, test = digits
    module = prepare(graph, calibration, Recipe(weights=everywhere(4, "nearest")), rule)
    found, wanted = outputs(module, test), int8_outputs(convert(module), test)
    assert np.mean(found.argmax(1) == wanted.argmax(1)) >= (0.999 if rule is Requant.TFLITE_REF else 0.98)


def test_untrained_modules_keep_all_integers(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, _ = digits
    for bits in (8, 4, 2):
        module = prepare(graph, calibration, Recipe(weights=everywhere(bits)))
        again = convert(module)
        wanted = build_int8(module.assignment, Requant.TFLM)
        for name, values in wanted.params.items():
            if values.dtype == np.int8:
                np.testing.assert_array_equal(again.params[name], values)
            else:
                np.testing.assert_allclose(again.params[name], values, atol=1)


def test_settling_draws_weights_to_their_codes_and_changes_none(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, _ = digits
    module = prepare(graph, calibration, Recipe(weights=everywhere(4, "nearest")))
    with torch.no_grad():
        for layer in module.layers.values():
            layer.weight.add_(0.3 * torch.exp(layer.log_scale).max() * torch.rand_like(layer.weight))
    before = {id: layer.codes().weights for id, layer in module.layers.items()}
    far = {
        id: float((layer.weight.detach() - torch.mul(*layer.rounded())).abs().sum())
        for id, layer in module.layers.items()
    }
    module.settle(0.5)
    for id, layer in module.layers.items():
        np.testing.assert_array_equal(layer.codes().weights, before[id])
        inside = float((layer.weight.detach() - torch.mul(*layer.rounded())).abs().sum())
        assert inside == pytest.approx(0.75 * far[id], rel=1e-3)


def test_state_moves_to_another_module(digits: tuple[Graph, Data, Data]) -> None:
    graph, calibration, test = digits
    recipe = Recipe(weights=everywhere(4, "nearest"))
    first, second = prepare(graph, calibration, recipe), prepare(graph, calibration, recipe)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.mul_(1.1)
    assert not np.array_equal(outputs(first, test), outputs(second, test))
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(outputs(first, test), outputs(second, test))
