"""Faults of models and data, each planted in the digits example: what is planted, and what rlx_edge says of it.

test_poisoned.py checks the messages, and that docs/data-hygiene.md quotes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_models import make_model, random_array

from rlx_edge.data import Data, load_data
from rlx_edge.errors import EdgeError
from rlx_edge.evaluate import evaluate
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, Graph
from rlx_edge.quant import calibrate, quantize
from rlx_edge.quant.explain import explain
from rlx_edge.resources import digits_dir

Change = Callable[[Array], Array | None]
Say = Callable[[Path], Sequence[str]]
"""Plants a fault, in a folder of its own, and returns what was said: warnings, or one error."""


@dataclass(frozen=True)
class Fault:
    """A row of the table: what is wrong, how it was planted, what says so, and words that its message must hold."""

    name: str
    planted: str
    found_by: str
    say: Say
    words: str
    refused: bool = False


def digits(**changes: Change) -> Graph:
    """The digits model with some weights or biases changed in place (`stem_w` is `stem.w`)."""
    proto = onnx.load(digits_dir() / "digits.onnx")
    for tensor in proto.graph.initializer:
        change = changes.get(tensor.name.replace(".", "_"))
        if change is not None:
            values = numpy_helper.to_array(tensor).copy()
            change(values)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return load_onnx(proto.SerializeToString())


def pixels(count: int = 64) -> Array:
    """Digits as the model takes them, [n, 1, 8, 8] from 0 to 1."""
    return load_data(digits_dir() / "digits_calibration.npz", digits(), samples=f"0:{count}").inputs["x"].copy()


def put(index: object, value: float) -> Change:
    """A change of some elements to one value."""

    def change(values: Array) -> None:
        values[index] = value  # type: ignore[index]

    return change


def times(index: object, factor: float) -> Change:
    def change(values: Array) -> None:
        values[index] *= np.float32(factor)  # type: ignore[index]

    return change


def told(action: Callable[[], Sequence[str]]) -> Sequence[str]:
    """The warnings of an action, or its error."""
    try:
        return tuple(action())
    except EdgeError as error:
        return (str(error),)


def file_says(plant: Callable[[], dict[str, Array]], **options: str) -> Say:
    """What load_data says of a file with these arrays."""

    def say(folder: Path) -> Sequence[str]:
        np.savez(folder / "data.npz", **plant())
        found = told(lambda: load_data(folder / "data.npz", digits(), **options).warnings)
        return tuple(text.replace(f"{folder}/", "") for text in found)

    return say


def calibration_says(model: Callable[[], Graph], data: Callable[[], Array] = pixels) -> Say:
    """What calibrate says of a model on data."""
    return lambda folder: told(lambda: calibrate(model(), Data({"x": data()})).warnings)


def changed(index: object, value: float) -> Array:
    values = pixels()
    values[index] = value  # type: ignore[index]
    return values


def small(*nodes: onnx.NodeProto, shape: Sequence[int], constants: dict[str, Array]) -> Graph:
    return load_onnx(make_model(nodes, {"x": shape}, ["y"], constants).SerializeToString())


def attention(hidden: float) -> Graph:
    """Scores [6, 6], of which each row may see its own and earlier columns, and a softmax."""
    mask = np.zeros((1, 6, 6), np.float32)
    mask[0][np.triu_indices(6, 1)] = hidden
    nodes = helper.make_node("Add", ["x", "mask"], ["masked"]), helper.make_node("Softmax", ["masked"], ["y"], axis=-1)
    return small(*nodes, shape=(1, 6, 6), constants={"mask": mask})


def padded_pool() -> Graph:
    pads = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "value": np.array(-3.4e38, np.float32)}
    pad = helper.make_node("Pad", ["x", "pads", "value"], ["padded"])
    return small(
        pad, helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3]), shape=(1, 1, 8, 8), constants=pads
    )


def scaled(factor: float) -> Graph:
    """64 numbers times a factor."""
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    return small(node, shape=(1, 64), constants={"factor": np.array(factor, np.float32)})


def shifted(least: float) -> Graph:
    """64 numbers plus constants, of which one is odd."""
    node = helper.make_node("Add", ["x", "offsets"], ["y"])
    return small(node, shape=(1, 64), constants={"offsets": np.array([least] + 63 * [0], np.float32)})


def there_and_back(far: float) -> Graph:
    """64 numbers, moved far and back."""
    nodes = helper.make_node("Add", ["x", "far"], ["moved"]), helper.make_node("Sub", ["moved", "far"], ["y"])
    return small(*nodes, shape=(1, 64), constants={"far": np.array(far, np.float32)})


def output_says(graph: Graph) -> Sequence[str]:
    data = Data({"x": rows()})
    calibration = calibrate(graph, data)
    return explain(graph, quantize(graph, calibration), calibration, data, sensitivity_samples=0).warnings


def rows() -> Array:
    return pixels().reshape(-1, 64)


def evaluation_says(folder: Path) -> Sequence[str]:
    """What load_data says of data for an int8 model that are three times as bright as the calibration's."""
    graph = digits()
    int8 = quantize(graph, calibrate(graph, Data({"x": pixels()})))
    np.savez(folder / "data.npz", x=3 * pixels())
    return tuple(t.replace(f"{folder}/", "") for t in load_data(folder / "data.npz", int8).warnings)


def inner_says(folder: Path) -> Sequence[str]:
    """The same within the model, where float values are at hand: calibrated on blank digits, explained on real ones."""
    graph = digits()
    calibration = calibrate(
        graph, Data({"x": pixels() * np.linspace(0.1, 0.4, 64, dtype=np.float32)[:, None, None, None]})
    )
    return explain(
        graph, quantize(graph, calibration), calibration, Data({"x": pixels()}), sensitivity_samples=0
    ).warnings


def labeled() -> Data:
    return Data({"x": pixels()}, np.zeros(64, np.int64))


def labels_say(labels: Array, metric: str = "top1") -> Say:
    return lambda folder: told(lambda: [str(evaluate(digits(), Data({"x": pixels()}, labels), metric))])


FAULTS: tuple[Fault, ...] = (
    Fault(
        "NaN in a data file",
        "x[5, 0, 2, 3] = NaN",
        "load_data",
        file_says(lambda: {"x": changed((5, 0, 2, 3), np.nan)}),
        "holds NaN; NaN and infinity in all: 1, the first in picked sample 5",
        refused=True,
    ),
    Fault(
        "infinity in calibration arrays",
        "x[5, 0, 2, 3] = inf",
        "calibrate",
        calibration_says(digits, lambda: changed((5, 0, 2, 3), np.inf)),
        "the input 'x' holds infinity in sample 5 at [0, 2, 3]",
        refused=True,
    ),
    Fault(
        "no samples",
        "x of shape [0, 1, 8, 8]",
        "load_data",
        file_says(lambda: {"x": pixels()[:0]}),
        "'x' has no samples",
        refused=True,
    ),
    Fault(
        "none picked",
        "64 samples, --samples 100:200",
        "load_data",
        file_says(lambda: {"x": pixels()}, samples="100:200"),
        "of which none were picked",
        refused=True,
    ),
    Fault(
        "wrong shape",
        "channels last",
        "load_data",
        file_says(lambda: {"x": pixels().transpose(0, 2, 3, 1)}),
        "moveaxis(x, -1, 1)",
        refused=True,
    ),
    Fault(
        "integers without a meaning",
        "uint8 pixels, no x_scale, no --preprocess",
        "load_data",
        file_says(lambda: {"x": (16 * pixels()).astype(np.uint8)}),
        "nothing says which real values these stand for",
        refused=True,
    ),
    Fault(
        "integers that an int8 model takes for its codes",
        "int8 pixels with --preprocess",
        "load_data",
        file_says(lambda: {"x": (16 * pixels()).astype(np.int8)}, preprocess="scale=1/16"),
        "which an int8 model would take for its own codes",
        refused=True,
    ),
    Fault(
        "pixels that were not scaled",
        "0..240 where the model takes 0..1",
        "calibrate",
        calibration_says(digits, lambda: np.rint(240 * pixels())),
        "look like raw pixels",
    ),
    Fault(
        "an input that is the same everywhere",
        "x = 0.5",
        "calibrate",
        calibration_says(digits, lambda: np.full((64, 1, 8, 8), 0.5, np.float32)),
        "is 0.5 in all of the 64 samples",
        refused=True,
    ),
    Fault(
        "one sample again and again",
        "64 copies of the first",
        "calibrate",
        calibration_says(digits, lambda: np.repeat(pixels(1), 64, axis=0)),
        "all 64 samples are the same",
    ),
    Fault(
        "mostly copies",
        "8 samples, 8 times each",
        "calibrate",
        calibration_says(digits, lambda: np.tile(pixels(8), (8, 1, 1, 1))),
        "only 8 of the 64 samples differ",
    ),
    Fault(
        "an activation that never varies",
        "depthwise.b = -1000",
        "calibrate",
        calibration_says(lambda: digits(depthwise_b=put(slice(None), -1000.0))),
        "'depthwise_relu' is 0 in every sample",
    ),
    Fault(
        "dead channels",
        "body.b[3] = body.b[7] = -1000",
        "calibrate",
        calibration_says(lambda: digits(body_b=put([3, 7], -1000.0))),
        "2 of 32 output channels (3, 7) are 0 in every sample (dead)",
    ),
    Fault(
        "channels without weights",
        "body.w[3] = 0",
        "calibrate",
        calibration_says(lambda: digits(body_w=put(3, 0.0))),
        "the weights of 1 of 32 output channels (3) are 0",
    ),
    Fault(
        "channels that vanish beside others",
        "body.w[3:5] and body.b[3:5] times 1e-6",
        "calibrate",
        calibration_says(lambda: digits(body_w=times(slice(3, 5), 1e-6), body_b=times(slice(3, 5), 1e-6))),
        "2 of 32 output channels (3, 4) become 0 throughout",
    ),
    Fault(
        "weights below the smallest scale",
        "body.w[3:5] times 1e-30",
        "calibrate",
        calibration_says(lambda: digits(body_w=times(slice(3, 5), 1e-30))),
        "the weights of 2 of 32 output channels (3, 4) become 0",
    ),
    Fault(
        "a bias that overflows int32",
        "head.b[3] = 5e6",
        "calibrate",
        calibration_says(lambda: digits(head_b=put(3, 5e6))),
        "does not fit int32 at x_scale * w_scale",
    ),
    Fault(
        "a scale that underflows",
        "a tensor of 1e-30",
        "calibrate",
        calibration_says(lambda: scaled(1e-30), rows),
        "it becomes 0 throughout",
    ),
    Fault(
        "a scale that overflows",
        "a tensor of 1e30",
        "calibrate",
        calibration_says(lambda: scaled(1e30), rows),
        "more than the largest scale",
    ),
    Fault(
        "a mask before a softmax",
        "-3.4e38 added to scores",
        "calibrate",
        calibration_says(lambda: attention(-3.4e38), lambda: 2 * random_array((64, 6, 6))),
        "holds a mask constant",
    ),
    Fault(
        "a mask as padding",
        "padding with -3.4e38 before MaxPool",
        "calibrate",
        calibration_says(padded_pool),
        "Pad 'padded': holds a mask constant",
    ),
    Fault(
        "an infinite mask",
        "-inf added to scores",
        "calibrate",
        calibration_says(lambda: attention(-np.inf), lambda: 2 * random_array((64, 6, 6))),
        "'masked': holds a mask constant, so that its range is -1e+30",
    ),
    Fault(
        "an infinite constant elsewhere",
        "x + -inf, as the output",
        "calibrate",
        calibration_says(lambda: shifted(-np.inf), rows),
        "a mask may be a finite number such as -1e9",
        refused=True,
    ),
    Fault(
        "NaN among weights",
        "body.w[3, 0, 0, 0] = NaN",
        "calibrate",
        calibration_says(lambda: digits(body_w=put((3, 0, 0, 0), np.nan))),
        "'body.w' holds NaN",
        refused=True,
    ),
    Fault(
        "a model that overflows",
        "body.w times 1e38",
        "calibrate",
        calibration_says(lambda: digits(body_w=times(slice(None), 1e38))),
        "whose inputs are finite: the model itself",
        refused=True,
    ),
    Fault(
        "data beyond the calibration",
        "an int8 model, x three times as bright",
        "load_data",
        evaluation_says,
        "goes beyond what the input 'x' was calibrated for",
    ),
    Fault(
        "tensors beyond the calibration",
        "calibrated on pale digits, explained on real ones",
        "explain",
        inner_says,
        "QConv2d 'body_relu' goes beyond its calibration",
    ),
    Fault(
        "a model that int8 cannot hold",
        "x + 1000 - 1000",
        "explain",
        lambda folder: output_says(there_and_back(1000.0)),
        "dB, where 20 and more is usual",
    ),
    Fault(
        "a model that gives NaN",
        "body.w times 1e38",
        "evaluate",
        lambda folder: told(lambda: [str(evaluate(digits(body_w=times(slice(None), 1e38)), labeled()))]),
        "gives NaN or infinity for 64 of 64 samples, the first is 0",
        refused=True,
    ),
    Fault(
        "labels that are no class",
        "y[9] = 10 of classes 0 to 9",
        "evaluate",
        labels_say(np.where(np.arange(64) == 9, 10, 0)),
        "the first is 10 of sample 9",
        refused=True,
    ),
    Fault(
        "labels for another task",
        "auc with classes 0 to 9",
        "evaluate",
        labels_say(np.arange(64) % 10, "auc"),
        "auc needs",
        refused=True,
    ),
)

HEAD = """# Data and models that would ruin an int8 model

Each fault was planted in the digits example (`examples/digits`), or in a small model where that has no such op, and
this is what rlx_edge says of it. A refusal is an error: the command exits with 2. A warning is a line on standard
error; the model is made. `tests/poisoned.py` plants the faults, and a test keeps this table current.

| fault | planted | found by | message |
|---|---|---|---|
"""


def document(messages: dict[str, str]) -> str:
    """docs/data-hygiene.md with these messages, by fault."""
    rows = [
        f"| {f.name} | {f.planted} | `{f.found_by}`, {'refused' if f.refused else 'warning'} "
        f"| {escaped(messages[f.name])} |"
        for f in FAULTS
    ]
    return HEAD + "\n".join(rows) + "\n" + TAIL


def escaped(message: str) -> str:
    """A message as it stands in a table."""
    return f"`{message}`".replace("|", r"\|")


TAIL = """
No scale is ever NaN, infinite, zero or subnormal, whatever the ranges and the weights: scales lie between 1e-12 and
2^60, so that the product of two, as biases have it, is a normal float32 too. What is too small for the smallest becomes
0, what is too large for the largest is clipped, and both are said.

A mask is a constant of 10,000 or more in size, 100 times or more what it is added to, among ordinary values, or such a
number as padding. Its tensor gets the range of the ordinary values, widened by 8 where a softmax follows: exp(-8) is
less than half of an int8 softmax's step. The SQNR of such a tensor counts the ordinary values.

Pixels are told by whole numbers from 0 up to 16..255 that would take the first layer, by its weights, to more than 100:
a model made for 0..255 reaches about 20 (ResNet8 of MLPerf Tiny), one made for 0..1 several hundred (MobileNet of
MLPerf Tiny, three MNIST nets).

Data are beyond the calibration where more than 1 % of the values exceed what the codes cover, or one goes half the
range too far; where a method clips on purpose, more than twice what it clipped.
"""
