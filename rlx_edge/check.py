"""Does the imported graph compute what the file computes in its own runtime?

Integers must have equal bits, floats the same values but for rounding. Where an output differs, every tensor that both
hold is compared, and the first one that parts is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlx_edge.data import Data
from rlx_edge.errors import EdgeError
from rlx_edge.formats.load import load
from rlx_edge.formats.source import read_source
from rlx_edge.formats.tflite_file import IDENTIFIER, read_model
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import Leaf
from rlx_edge.reference import run_all
from rlx_edge.reference.fixedpoint import dequantize_f32
from rlx_edge.runtimes import INSTALL, Runtime, RuntimeRefusedError, Session, installed_for

RANDOM_SAMPLES = 4
GIVEN_SAMPLES = 4
SAME_FLOAT_DB = 90.0
"""Float32 sums in another order differ by about 120 dB; a tensor below this is not the same function."""


@dataclass(frozen=True)
class TensorCheck:
    """One tensor over all samples: equal bits for integers, an SQNR in dB for floats (infinite: no difference)."""

    name: str
    node: str
    elements: int
    differing: int
    sqnr_db: float | None

    @property
    def same(self) -> bool:
        return self.differing == 0 if self.sqnr_db is None else self.sqnr_db >= SAME_FLOAT_DB

    def __str__(self) -> str:
        if self.sqnr_db is None:
            return f"{self.differing} of {self.elements} integers differ" if self.differing else "equal bits"
        return f"SQNR {self.sqnr_db:.1f} dB"


@dataclass(frozen=True)
class Check:
    """A file beside its import. `parted` is the first tensor that differs, or None; `refused` what the runtime said."""

    runtime: str
    samples: int
    outputs: tuple[TensorCheck, ...] = ()
    parted: TensorCheck | None = None
    refused: str | None = None

    @property
    def same(self) -> bool:
        return all(output.same for output in self.outputs)


def check_model(path: Path | str, data: Data | None = None, dims: Mapping[str, int] | None = None) -> tuple[Check, ...]:
    """Run the file in each of its runtimes that is installed, and its import in the reference.

    `dims` gives sizes to symbolic axes, as for `load`. Samples: random ones (integers of the whole range, floats of a
    normal distribution), and the first of `data`. Raises EdgeError for a format without a runtime, and when no runtime
    is installed or runs the file. Where one of several does not run it, its Check says so.
    """
    content, where = read_source(Path(path))
    found = installed_for(content)
    if content[4:8] != IDENTIFIER and Path(path).suffix == ".rlx":
        raise EdgeError(f"{where}: a .rlx file has no runtime of its own to be checked against")
    if not found:
        raise EdgeError(f"{where}: no runtime for this file is installed to check it against; {INSTALL}")
    checks = []
    for runtime in found:
        graph = load(path, requant=runtime.rule) if content[4:8] == IDENTIFIER else load(path, dims=dims)
        if runtime.integers or not _has_integers(graph):
            checks.append(check_graph(runtime, content, graph, data))
    if not any(check.refused is None for check in checks):
        reasons = "; ".join(check.refused for check in checks if check.refused) or "they are no measure for int8 models"
        raise EdgeError(f"{where}: no installed runtime runs it, so it cannot be checked: {reasons}")
    return tuple(checks)


def _has_integers(graph: Graph) -> bool:
    return any(node.type.dtype is DType.I8 for node in graph.nodes)


def check_graph(runtime: Runtime, content: bytes, graph: Graph, data: Data | None = None) -> Check:
    """The same for one runtime and a graph that should compute what the file's content does."""
    samples = list(_samples(graph, data))
    pairs = [(node, _source(node)) for node in graph.output_nodes]
    try:
        outputs = _compare(runtime.open(content, None), content, graph, samples, pairs)
        if all(output.same for output in outputs):
            return Check(runtime.name, len(samples), outputs)
        taps = _taps(content, graph)
        session = runtime.open(content, [name for _, name in taps])
        compared = _compare(session, content, graph, samples, taps)
    except RuntimeRefusedError as error:
        return Check(runtime.name, len(samples), refused=str(error))
    parted = next((tensor for tensor in compared if not tensor.same), None)
    return Check(runtime.name, len(samples), outputs, parted)


def _source(node: Node) -> str:
    """The file's tensor that a node computes: the last of those that it stands for."""
    return node.sources[-1] if node.sources else node.name


def _samples(graph: Graph, data: Data | None) -> list[dict[str, Array]]:
    """Inputs of the graph, by name."""
    random = np.random.default_rng(0)
    made: list[dict[str, Array]] = []
    for _ in range(RANDOM_SAMPLES):
        made.append({node.name: _random(random, node) for node in graph.inputs})
    for i in range(0 if data is None else min(len(data), GIVEN_SAMPLES)):
        assert data is not None
        made.append({node.name: data.inputs[node.name][i].reshape(node.type.shape) for node in graph.inputs})
    return made


def _random(random: np.random.Generator, node: Node) -> Array:
    shape, dtype = node.type.shape, node.type.dtype
    if dtype is DType.F32:
        return random.standard_normal(shape, np.float32)
    if dtype is DType.BOOL:
        return random.integers(0, 2, shape).astype(np.bool_)
    low, high = dtype.limits if dtype.bits == 8 else (0, 1)
    return random.integers(low, high, shape, endpoint=True).astype(dtype.numpy)


def _taps(content: bytes, graph: Graph) -> list[tuple[Node, str]]:
    """Every tensor that the graph and the file both compute, in the graph's order; only names that are unique."""
    names = _file_names(content)
    seen: dict[str, Node] = {}
    for node in graph.nodes:
        if isinstance(node.op, Leaf):
            continue
        for name in node.sources:
            if names.count(name) == 1:
                seen[name] = node
    return [(node, name) for name, node in seen.items()]


def _file_names(content: bytes) -> list[str]:
    if content[4:8] == IDENTIFIER:
        return [tensor.name for tensor in read_model(content, "the model").tensors]
    import onnx

    graph = onnx.load_model_from_string(content).graph
    return [name for node in graph.node for name in node.output if name]


# ---- Comparing -------------------------------------------------------------------------------------------------------


class _Sums:
    def __init__(self) -> None:
        self.elements = self.differing = 0
        self.signal = self.noise = 0.0
        self.integer = True

    def add(self, theirs: Array, ours: Array) -> None:
        self.integer = theirs.dtype.kind in "iub"
        self.elements += theirs.size
        equal = theirs == ours
        if not self.integer:
            equal |= np.isnan(theirs) & np.isnan(ours)
            self.signal += float(np.sum(np.square(theirs, dtype=np.float64), where=np.isfinite(theirs)))
            error = np.subtract(theirs, ours, out=np.zeros(theirs.shape), where=~equal, dtype=np.float64)
            self.noise += float(np.sum(error * error))
        self.differing += int(np.sum(~equal))

    def result(self, name: str, node: str) -> TensorCheck:
        if self.integer or self.noise == 0:
            return TensorCheck(name, node, self.elements, self.differing, None if self.integer else float("inf"))
        sqnr = 10 * np.log10(self.signal / self.noise) if self.signal > 0 and np.isfinite(self.noise) else -np.inf
        return TensorCheck(name, node, self.elements, self.differing, float(sqnr))


def _compare(
    session: Session,
    content: bytes,
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    pairs: Sequence[tuple[Node, str]],
) -> tuple[TensorCheck, ...]:
    wide = _wide_inputs(content)
    sums = {name: _Sums() for _, name in pairs}
    for sample in samples:
        given = [_as_theirs(sample[node.name], node, wide[i]) for i, node in enumerate(graph.inputs)]
        theirs = session(given)
        ours = run_all(graph, sample)
        for node, name in pairs:
            found = theirs[name]
            sums[name].add(found, _as_theirs(ours[node.name].reshape(found.shape), node, found.dtype))
    return tuple(sums[name].result(name, node.name) for node, name in pairs)


def _wide_inputs(content: bytes) -> list[np.dtype[np.generic]]:
    """The dtypes of the file's inputs."""
    if content[4:8] == IDENTIFIER:
        model = read_model(content, "the model")
        return [np.dtype(model.tensors[i].type_name.lower()) for i in model.inputs]
    import onnx

    graph = onnx.load_model_from_string(content).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    return [onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in inputs]


def _as_theirs(values: Array, node: Node, dtype: np.dtype[np.generic]) -> Array:
    """A graph's values as the file has them: uint8 where it was moved to int8, real where Quantize was folded away."""
    if values.dtype == np.int8 and dtype == np.uint8:
        return (values.astype(np.int16) + 128).astype(np.uint8)
    if values.dtype == np.int8 and dtype == np.float32 and node.type.quant is not None:
        return dequantize_f32(values, node.type.quant)
    return values
