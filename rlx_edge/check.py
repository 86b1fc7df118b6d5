"""Does the imported graph compute what the file computes in its own runtime?

Integers must have equal bits, floats the same values but for rounding. Where an output differs, every tensor that both
hold is compared, and the first one that parts is named.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rlx_edge.data import Data
from rlx_edge.errors import EdgeError
from rlx_edge.formats.load import load
from rlx_edge.formats.source import read_source
from rlx_edge.formats.tflite_file import IDENTIFIER, FileModel, read_model
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import Leaf
from rlx_edge.reference.fixedpoint import dequantize_f32
from rlx_edge.reference.run import evaluate, observe, run
from rlx_edge.runtime_process import run_apart
from rlx_edge.runtimes import INSTALL, ONNX, Runtime, RuntimeRefusedError, installed_for, may_saturate

RANDOM_SAMPLES = 4
GIVEN_SAMPLES = 4
SATURATES = (
    "on this CPU (x86 without VNNI) onnxruntime saturates sums of uint8 times int8: compare on another, or a model "
    "quantized with reduce_range, before you take it for a fault of the import"
)

FEW_BITS = (
    "onnxruntime sums layers of 4-bit weights in float32, which may round a tie to the other side; with --int8-weights "
    "the file holds the same weights as bytes, for which it has integer kernels"
)

HYBRID = ("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
"""TFLite's operators that take float activations and integer weights."""

SAME_FLOAT_DB = 90.0
"""Float32 sums in another order differ by about 120 dB; a tensor below this is not the same function."""


@dataclass(frozen=True)
class TensorCheck:
    """One tensor over all samples: equal bits for integers, an SQNR in dB for floats (infinite: no difference).

    `largest` is the largest difference of integers. Real values of a tensor that is int8 here count as its integers.
    """

    name: str
    node: str
    elements: int
    differing: int
    sqnr_db: float | None
    largest: int = 0

    @property
    def same(self) -> bool:
        return self.differing == 0 if self.sqnr_db is None else self.sqnr_db >= SAME_FLOAT_DB

    def __str__(self) -> str:
        if self.sqnr_db is None and self.differing:
            return f"{self.differing} of {self.elements} integers differ, by {self.largest} at most"
        if self.sqnr_db is None:
            return "equal bits"
        return f"SQNR {self.sqnr_db:.1f} dB"


@dataclass(frozen=True)
class Check:
    """A file beside its import. `refused` is what the runtime said.

    `parted` is the first tensor that differs although its operands are equal, or None. Differences by 1 come second: a
    runtime that sums int8 models in float32 (onnxruntime, QDQ) may round a tie to the other side anywhere.
    """

    runtime: str
    samples: int
    outputs: tuple[TensorCheck, ...] = ()
    parted: TensorCheck | None = None
    refused: str | None = None
    caution: str | None = None
    """On a difference: why it may be the runtime's own."""

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
    if content[4:8] == IDENTIFIER and _is_hybrid(read_model(content, where)):
        raise EdgeError(
            f"{where}: a hybrid file (float activations, integer weights) cannot be checked: its runtimes also round "
            "the activations while they run, and the import is the float model without that rounding (docs/models.md)"
        )
    checks = []
    for runtime in found:
        graph = load(path, requant=runtime.rule) if content[4:8] == IDENTIFIER else load(path, dims=dims)
        if runtime.integers or not _has_integers(graph):
            checks.append(check_graph(runtime, content, graph, data))
    _raise_if_refused(checks, where)
    return tuple(checks)


def _raise_if_refused(checks: Sequence[Check], where: str) -> None:
    if not any(check.refused is None for check in checks):
        reasons = "; ".join(check.refused for check in checks if check.refused) or "they are no measure for int8 models"
        raise EdgeError(f"{where}: no installed runtime runs it, so it cannot be checked: {reasons}")


def _is_hybrid(model: FileModel) -> bool:
    """Whether an operator reads float activations and integer weights, without a DEQUANTIZE in between."""
    types = [[model.tensors[i].type_name for i in op.inputs[:2] if i >= 0] for op in model.operators]
    kinds = zip((op.kind for op in model.operators), types, strict=True)
    return any(
        kind in HYBRID and t[:1] == ["FLOAT32"] and t[1:] in (["INT4"], ["INT8"], ["UINT8"]) for kind, t in kinds
    )


def _has_integers(graph: Graph) -> bool:
    return any(node.type.dtype is DType.I8 for node in graph.nodes)


def check_exported(path: Path | str, graph: Graph, data: Data | None = None) -> tuple[Check, ...]:
    """The same for a file that was made of a graph: does its runtime compute what the graph does?

    Only runtimes count that have the graph's rounding rule.
    """
    content, where = read_source(Path(path))
    rules = {getattr(node.op, "requant", None) for node in graph.nodes} - {None}
    found = [runtime for runtime in installed_for(content) if runtime.integers and rules <= {runtime.rule}]
    if not found:
        names = ", ".join(sorted(rule.value for rule in rules if rule))
        raise EdgeError(f"{where}: no runtime with the rule {names} is installed to check it against; {INSTALL}")
    named = replace(graph, nodes=tuple(replace(node, sources=(node.name,)) for node in graph.nodes))
    checks = tuple(check_graph(runtime, content, named, data) for runtime in found)
    _raise_if_refused(checks, where)
    return checks


def check_graph(runtime: Runtime, content: bytes, graph: Graph, data: Data | None = None) -> Check:
    """The same for one runtime and a graph that should compute what the file's content does."""
    samples = list(_samples(graph, data))
    pairs = [(node, node.name) for node in graph.output_nodes]
    try:
        outputs = _compare(runtime, content, graph, samples, pairs, None)
        if all(output.same for output in outputs):
            return Check(runtime.name, len(samples), outputs)
        taps = _taps(content, graph)
        compared = _compare(runtime, content, graph, samples, taps, [name for _, name in taps])
    except RuntimeRefusedError as error:
        return Check(runtime.name, len(samples), refused=str(error))
    parts = [tensor for tensor in compared if not tensor.same]
    parted = next((tensor for tensor in parts if tensor.largest != 1), parts[0] if parts else None)
    caution = _caution(content, graph, parted) if runtime.format == ONNX else None
    return Check(runtime.name, len(samples), outputs, parted, caution=caution)


def _caution(content: bytes, graph: Graph, parted: TensorCheck | None) -> str | None:
    """Why a difference may be onnxruntime's own."""
    if may_saturate(content):
        return SATURATES
    few = any(node.type.dtype in (DType.I4, DType.I2) for node in graph.nodes)
    return FEW_BITS if few and parted is not None and parted.largest == 1 else None


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
    """`step`: of a tensor that is int8 here, its scale where the file has real values, else 1; None for floats."""

    def __init__(self, step: float | None) -> None:
        self.step = step
        self.elements = self.differing = 0
        self.signal = self.noise = self.largest = 0.0

    def add(self, theirs: Array, ours: Array) -> None:
        self.elements += theirs.size
        equal = theirs == ours
        if theirs.dtype.kind == "f":
            equal |= np.isnan(theirs) & np.isnan(ours)
        self.differing += int(np.sum(~equal))
        error = np.subtract(theirs, ours, out=np.zeros(theirs.shape), where=~equal, dtype=np.float64)
        if self.step is None:
            self.signal += float(np.sum(np.square(theirs, dtype=np.float64), where=np.isfinite(theirs)))
            self.noise += float(np.sum(error * error))
        else:
            self.largest = max(self.largest, float(np.abs(error).max(initial=0)) / self.step)

    def result(self, name: str, node: str) -> TensorCheck:
        if self.step is not None:
            largest = round(self.largest) if np.isfinite(self.largest) else sys.maxsize
            return TensorCheck(name, node, self.elements, self.differing, None, largest)
        if self.noise == 0:
            return TensorCheck(name, node, self.elements, self.differing, float("inf"))
        sqnr = 10 * np.log10(self.signal / self.noise) if self.signal > 0 and np.isfinite(self.noise) else -np.inf
        return TensorCheck(name, node, self.elements, self.differing, float(sqnr))


def _step(node: Node, theirs: np.dtype[np.generic]) -> float | None:
    if theirs.kind != "f":
        return 1.0
    return None if node.type.dtype is DType.F32 or node.type.quant is None else node.type.quant.scale


def _compare(
    runtime: Runtime,
    content: bytes,
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    pairs: Sequence[tuple[Node, str]],
    tensors: Sequence[str] | None,
) -> tuple[TensorCheck, ...]:
    """Nodes beside what they stand for: `tensors`, each from the runtime's own operands, or the outputs."""
    wide = _wide_inputs(content)
    sums: list[_Sums] = []
    given = [[_as_theirs(s[node.name], node, wide[i]) for i, node in enumerate(graph.inputs)] for s in samples]
    for sample, theirs in zip(samples, run_apart(runtime, content, tensors, given), strict=True):
        held = {node.id: found for (node, _), found in zip(pairs, theirs, strict=True)}
        ours = run(graph, sample) if tensors is None else _run_on(graph, sample, held)
        sums = sums or [_Sums(_step(node, found.dtype)) for (node, _), found in zip(pairs, theirs, strict=True)]
        for (node, _), found, sum in zip(pairs, theirs, sums, strict=True):
            sum.add(found, _as_theirs(ours[node.name].reshape(found.shape), node, found.dtype))
    return tuple(sum.result(name, node.name) for (node, name), sum in zip(pairs, sums, strict=True))


def _run_on(graph: Graph, sample: Mapping[str, Array], theirs: Mapping[int, Array]) -> dict[str, Array]:
    """The value of each computed node from the runtime's operands, where it has them (by node)."""
    ours: dict[str, Array] = {}

    def compute(graph: Graph, node: Node, operands: Sequence[Array]) -> Array:
        ours[node.name] = evaluate(graph, node, operands)
        return _as_ours(theirs[node.id], node) if node.id in theirs else ours[node.name]

    observe(graph, sample, lambda node, value: None, compute)
    return ours


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


def _as_ours(values: Array, node: Node) -> Array:
    """The file's values as the graph has them; those of a tensor that is int8 here are multiples of its scale."""
    values, quant = values.reshape(node.type.shape), node.type.quant
    if node.type.dtype is DType.I8 and values.dtype == np.uint8:
        return (values.astype(np.int16) - 128).astype(np.int8)
    if node.type.dtype is DType.I8 and values.dtype == np.float32 and quant is not None:
        codes = np.rint(values / np.float64(quant.scale)) + quant.zero_point
        return np.asarray(np.clip(codes, -128, 127).astype(np.int8))
    return values
