"""Parity of every layer, those within stages included, on an emulated board; and the names that people give layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import ModelMaker, samples

from rlx_edge import api
from rlx_edge.cgen.emit import short_names
from rlx_edge.cgen.host import partial_tensors
from rlx_edge.cgen.options import Options
from rlx_edge.cgen.plan import Tensor
from rlx_edge.data import Data
from rlx_edge.device.parity import ParityResult
from rlx_edge.device.scope import find_layer
from rlx_edge.errors import EdgeError
from rlx_edge.ir import Graph, TensorType
from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops import Leaf


def residual_model() -> Graph:
    """A residual block, and a convolution that leaves the last row of its input unread."""
    maker = ModelMaker("residual", 4)
    x = maker.conv(maker.input((1, 16, 10, 3)), 6, name="stem")
    x = maker.add(x, maker.conv(maker.conv(x, 6, name="a"), 6, name="b"), "sum")
    x = maker.conv(x, 8, 1, 2, name="strided")
    return maker.builder.build([maker.dense(maker.flatten(maker.conv(x, 2, 1, name="last")), 3)])


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers") / "build"
    api.build({"residual": residual_model()}, "mps2-an386", folder, options=Options(ram_budget=0))
    return folder


@pytest.fixture(scope="module")
def all_layers(build: Path) -> ParityResult:
    return api.parity(build, Data(samples(residual_model(), 2)), layers=True)


def test_every_tensor_of_the_lowered_graph_is_compared(build: Path, all_layers: ParityResult) -> None:
    (model,) = api.open_models(build)
    names = short_names(model.plan.all_tensors)
    nodes = {names[node.name] for node in model.plan.graph.nodes if not isinstance(node.op, Leaf)}
    assert all_layers.exact
    assert {row.tensor for row in all_layers.rows if row.engine == "reference"} == nodes
    assert {row.tensor for row in all_layers.rows if row.by_rows} >= {"stem", "a", "b"}
    assert not all_layers.skipped


def test_of_rows_that_nothing_reads_none_is_compared(build: Path, all_layers: ParityResult) -> None:
    """The sum has 16 rows; with a stride of 2 the last is not read, so that it is never made."""
    (model,) = api.open_models(build)
    rows = {row.tensor: row.compared_bytes for row in all_layers.rows if row.engine == "reference"}
    assert partial_tensors(model.plan) == {"sum", "b"}
    assert (rows["sum"], rows["stem"]) == (2 * 15 * 10 * 6, 2 * 16 * 10 * 6)


def test_each_tensor_says_what_it_stands_for(build: Path, all_layers: ParityResult) -> None:
    (model,) = api.open_models(build)
    assert all_layers.stands_for == {tensor.name: tensor.sources for tensor in model.plan.all_tensors}


def test_comparison_ends_with_a_layer(build: Path) -> None:
    until = api.parity(build, Data(samples(residual_model(), 2)), until="sum")
    assert until.exact
    assert {row.tensor for row in until.rows} >= {"stem", "a", "b", "sum"}
    assert not {row.tensor for row in until.rows} & {"last", "dense"}


def test_a_single_layer_is_compared(build: Path) -> None:
    for name in ("b", "dense"):
        one = api.parity(build, Data(samples(residual_model(), 2)), layer=name)
        assert one.exact
        assert {row.tensor for row in one.rows} == {name}


def test_an_empty_name_is_no_layer(build: Path) -> None:
    with pytest.raises(EdgeError, match="several tensors are called like ''"):
        api.parity(build, Data(samples(residual_model(), 1)), layer="")


def test_a_single_layer_and_a_last_one_do_not_go_together(build: Path) -> None:
    with pytest.raises(EdgeError, match="give either --layer or --until"):
        api.parity(build, Data(samples(residual_model(), 1)), until="a", layer="dense")


def tensor(name: str, *sources: str, step: int | None) -> Tensor:
    return Tensor(0, name, TensorType((1,), DType.I8), sources, 0, step)


TENSORS = (
    tensor("x", step=None),
    tensor("net/conv_1/Relu", "conv", "relu", step=0),
    tensor("net/conv_2/Relu", "split", step=1),
    tensor("net/add", "split", step=2),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("net/conv_1/Relu", "net/conv_1/Relu"),
        ("relu", "net/conv_1/Relu"),
        ("split", "net/add"),
        ("conv_2", "net/conv_2/Relu"),
    ],
)
def test_layers_go_by_many_names(wanted: str, found: str) -> None:
    assert find_layer(TENSORS, short_names(TENSORS), wanted) == found


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ("Relu", "several tensors are called like 'Relu': 'net/conv_1/Relu'; 'net/conv_2/Relu'"),
        ("net/ad", ""),
        ("net/conv1/Relu", "no layer makes a tensor like 'net/conv1/Relu'; did you mean 'net/conv_1/Relu'; 'net/conv"),
        ("x", "no layer makes a tensor like 'x'"),
    ],
)
def test_unknown_layers_are_refused_with_those_that_are_close(wanted: str, line: str) -> None:
    if not line:
        assert find_layer(TENSORS, short_names(TENSORS), wanted) == "net/add"
        return
    with pytest.raises(EdgeError) as caught:
        find_layer(TENSORS, short_names(TENSORS), wanted)
    assert str(caught.value).startswith(line)
