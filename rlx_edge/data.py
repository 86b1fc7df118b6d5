"""Data files: the samples that a model is calibrated on, tested with, or run on.

A data file is an `.npz` with one array per model input, by the input's name, or `x` for a single input, the samples
along the first axis, each of the input's shape without a first axis of 1; labels in `y`. Floats are real values.
Integers that the file has `x_scale` (and `x_zero_point`) for stand for real values. Others of the input's own dtype are
the model's own values; any others need a preprocessing. A folder of images is read as bytes, 0 to 255, which need one
too; see images.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import numpy as np

from rlx_edge.coverage import Coverage, coverage
from rlx_edge.errors import DataError
from rlx_edge.files import read_npz
from rlx_edge.images import read_images
from rlx_edge.ir import Array, DType, Graph, Node, QuantParams, Shape
from rlx_edge.ir.batch import sample_shape
from rlx_edge.preprocess import Preprocess, in_float32
from rlx_edge.reference.fixedpoint import Rounding, input_rounding, quantize_f32
from rlx_edge.stored import blocks, converted, in_memory

LABELS = "y"

FLOATS_TOO = "preprocess_floats"
"""The key in a graph's metadata that says that the stored preprocessing was applied to floats too."""


@dataclass(frozen=True, eq=False)
class Data:
    """Samples for one model: each input [n, *sample shape] in the input's dtype, and labels [n, ...] if there are any.

    `preprocess` is what turned the file's numbers into real values, as text, or None; `preprocessed_floats` says that
    some were floats. `warnings` are for a person, a line each: values that the codes of an int8 input do not cover.
    """

    inputs: Mapping[str, Array]
    labels: Array | None = None
    preprocess: str | None = None
    warnings: tuple[str, ...] = ()
    preprocessed_floats: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values()), ()))

    def batch(self, start: int, stop: int) -> dict[str, Array]:
        """The inputs of samples start to stop, without stop."""
        return {name: in_memory(values[start:stop]) for name, values in self.inputs.items()}

    def batches(self, size: int) -> Iterator[dict[str, Array]]:
        """The inputs of `size` samples at a time; the last may have fewer."""
        return (self.batch(start, start + size) for start in range(0, len(self), size))


def load_data(
    path: str | Path,
    graph: Graph,
    *,
    samples: str | None = None,
    labels: str = LABELS,
    preprocess: str | Preprocess | None = None,
) -> Data:
    """The samples of a data file, as the graph's inputs take them.

    `samples` picks some, as in `0:256:2`; `labels` is the key of the labels, which only `y` may lack; `preprocess`
    is a text such as `scale=1/255,mean=0.5,std=0.25`, else that of the graph's metadata counts for integers that the
    file gives no meaning. Raises DataError, in one line, for a file that cannot be read or that does not fit.
    """
    if not graph.inputs:
        raise DataError(f"{graph.name!r} has no inputs, so there is nothing to run it on")
    chosen = parse_samples(samples)
    given = Preprocess.parse(preprocess) if isinstance(preprocess, str) else preprocess
    stored = graph.metadata.get("preprocess")
    if Path(path).is_dir():
        arrays, chosen = _images(Path(path), graph, chosen, given or (Preprocess.parse(stored) if stored else None))
    else:
        arrays = read_npz(Path(path))
        if given is not None and given.resize is not None:
            raise DataError(f"{path}: resize is for folders of images, not for arrays")
    reader = _Reader(str(path), arrays, chosen, given, stored, input_rounding(graph), FLOATS_TOO in graph.metadata)
    inputs = {node.name: reader.input(node, _key(node, graph, arrays, str(path))) for node in graph.inputs}
    counts = {name: len(values) for name, values in inputs.items()}
    if len(set(counts.values())) > 1:
        raise DataError(f"{path}: the inputs have different numbers of samples: {counts}")
    found = reader.labels(labels, next(iter(counts.values())))
    used = None if reader.used is None else str(reader.used)
    return Data(inputs, found, used, tuple(reader.warnings), reader.used_on_floats)


def preprocess_metadata(data: Data) -> dict[str, str]:
    """What a model that is calibrated on these samples stores of how they were preprocessed."""
    if not data.preprocess:
        return {}
    return {"preprocess": data.preprocess, **({FLOATS_TOO: "1"} if data.preprocessed_floats else {})}


def _images(folder: Path, graph: Graph, chosen: slice, preprocess: Preprocess | None) -> tuple[dict[str, Array], slice]:
    """The arrays of a folder of images, of which the samples have been picked already."""
    if len(graph.inputs) != 1:
        raise DataError(f"{folder}: a folder of images has one input, but the model has {len(graph.inputs)}")
    resize = None if preprocess is None else preprocess.resize
    return read_images(folder, graph.inputs[0].type.shape, chosen, resize), slice(None)


def parse_samples(text: str | None) -> slice:
    """The slice that `a:b:c` (any part may be missing) or `a` stands for. Raises DataError for any other text."""
    if text is None:
        return slice(None)
    try:
        parts = [int(part) if part.strip() else None for part in text.split(":")]
    except ValueError:
        parts = []
    if len(parts) == 1 and parts[0] is not None:
        return slice(parts[0], parts[0] + 1 or None)
    if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] == 0):
        raise DataError(f"samples {text!r}: write start:stop:step, as in 0:256:2")
    return slice(*parts)


def _key(node: Node, graph: Graph, arrays: Mapping[str, Array], path: str) -> str:
    """The array of an input: by its name, or `x` where there is one input only."""
    if node.name in arrays:
        return node.name
    if "x" in arrays and len(graph.inputs) == 1:
        return "x"
    wanted = f"{node.name!r} or 'x'" if len(graph.inputs) == 1 and node.name != "x" else f"{node.name!r}"
    raise DataError(f"{path}: no array {wanted} for the model's input; the file has {', '.join(arrays) or 'none'}")


@dataclass
class _Reader:
    path: str
    arrays: Mapping[str, Array]
    chosen: slice
    given: Preprocess | None
    stored: str | None
    rounding: Rounding
    floats_too: bool
    used: Preprocess | None = None
    used_on_floats: bool = False
    warnings: list[str] = field(default_factory=list)

    def input(self, node: Node, key: str) -> Array:
        """One input's samples in its dtype."""
        values = self._samples(key)
        wanted = sample_shape(node.type.shape)
        if values.shape[1:] != wanted:
            raise DataError(
                f"{self.path}: {key!r} holds samples of shape {list(values.shape[1:])}, but the input {node.name!r} "
                f"takes {list(wanted)}{_layout_hint(values.shape[1:], wanted)}"
            )
        own = node.type.dtype.is_integer and values.dtype == node.type.dtype.numpy
        if own and not (node.type.quant is not None and f"{key}_scale" in self.arrays):
            if self.given is not None:
                raise DataError(
                    f"{self.path}: {key!r} holds {values.dtype}, the input's own values: preprocessing does not apply"
                )
            return _contiguous(values)
        real = self._finite(key, self._real(key, values, node))
        if node.type.dtype == DType.F32:
            return _contiguous(real)
        if node.type.quant is None:
            raise DataError(f"{self.path}: {key!r} holds {values.dtype}, but the input {node.name!r} is {node.type}")
        if node.type.dtype is DType.I8 and node.type.quant.axis is None:
            self._note_coverage(key, node, real, node.type.quant)
        quant, dtype = node.type.quant, node.type.dtype
        return converted(real, dtype.numpy, lambda block: quantize_f32(block, quant, dtype, self.rounding))

    def _note_coverage(self, key: str, node: Node, real: Array, quant: QuantParams) -> None:
        found = reduce(Coverage.joined, (coverage(block, quant) for _, block in blocks(real)))
        if found.hardly:
            self.warnings.append(
                f"{self.path}: {key!r} goes beyond what the input {node.name!r} was calibrated for: {found.text()}; "
                "calibrate on data like these, or check the preprocessing"
            )

    def labels(self, key: str, count: int) -> Array | None:
        if key not in self.arrays:
            if key == LABELS:
                return None
            raise DataError(f"{self.path}: no labels {key!r}; the file has {', '.join(self.arrays)}")
        values = self._samples(key)
        if len(values) != count:
            raise DataError(f"{self.path}: {len(values)} labels in {key!r} for {count} samples")
        return self._finite(key, values) if values.dtype.kind == "f" else values

    def _samples(self, key: str) -> Array:
        values = self.arrays[key]
        if values.ndim == 0:
            raise DataError(f"{self.path}: {key!r} is a single number; samples go along the first axis")
        chosen = values[self.chosen]
        if not len(chosen):
            which = "no samples" if not len(values) else f"{len(values)} samples, of which none were picked"
            raise DataError(f"{self.path}: {key!r} has {which}")
        return chosen

    def _real(self, key: str, values: Array, node: Node) -> Array:
        """The real values, float32, that an array stands for."""
        kind = values.dtype.kind
        if kind not in "iuf":
            raise DataError(f"{self.path}: {key!r} is {values.dtype}; floats or integers are needed")
        scale, zero = self.arrays.get(f"{key}_scale"), self.arrays.get(f"{key}_zero_point")
        if self.given is not None:
            if scale is not None or zero is not None:
                raise DataError(f"{self.path}: has {key}_scale or {key}_zero_point, so no preprocessing is needed")
            if values.dtype == np.int8:
                raise DataError(
                    f"{self.path}: {key!r} is int8, which an int8 model would take for its own codes: instead of a "
                    f"preprocessing add {key}_scale and {key}_zero_point to the file, or store uint8 or floats"
                )
            return self._preprocessed(key, values, self.given)
        if kind == "f":
            if self.floats_too:
                self.warnings.append(
                    f"{self.path}: {key!r} is {values.dtype}, taken as real values, but floats were preprocessed when "
                    f"the model was calibrated: where these are like those, add --preprocess {self.stored}"
                )
            with np.errstate(over="ignore"):
                return values if values.dtype == np.float32 else converted(values, np.float32)
        if scale is not None:
            return self._scaled(key, values, scale, zero)
        if self.stored is not None:
            return self._preprocessed(key, values, Preprocess.parse(self.stored))
        raise DataError(
            f"{self.path}: {key!r} is {values.dtype} and nothing says which real values these stand for: "
            f"--preprocess scale=1/255 where the model was trained on 0..1, scale=1 on 0..255{_covered(node)}; or add "
            f"{key}_scale and {key}_zero_point to the file"
        )

    def _scaled(self, key: str, values: Array, scale: Array, zero: Array | None) -> Array:
        offset = np.zeros(1) if zero is None else zero
        if scale.size != 1 or offset.size != 1 or scale.dtype.kind not in "iuf" or offset.dtype.kind not in "iuf":
            raise DataError(f"{self.path}: {key}_scale and {key}_zero_point must be single numbers")
        step = float(scale.reshape(-1)[0])
        if not (np.isfinite(step) and step > 0):
            raise DataError(f"{self.path}: {key}_scale is {step}; a positive number is needed")
        first = float(offset.reshape(-1)[0])
        return in_float32(values, lambda wide: (wide - first) * step)

    def _preprocessed(self, key: str, values: Array, preprocess: Preprocess) -> Array:
        self.used = preprocess
        self.used_on_floats = self.used_on_floats or values.dtype.kind == "f"
        try:
            return preprocess.apply(values)
        except DataError as error:
            raise DataError(f"{self.path}: {key!r}: {error}") from error

    def _finite(self, key: str, values: Array) -> Array:
        count, first = 0, None
        for start, block in blocks(values):
            bad = ~np.isfinite(block)
            if first is None and bad.any():
                sample, *rest = (int(i) for i in np.argwhere(bad)[0])
                first = sample + start, rest, "NaN" if np.isnan(block[(sample, *rest)]) else "infinity"
            count += int(bad.sum())
        if first is not None:
            raise DataError(
                f"{self.path}: {key!r} holds {first[2]}; NaN and infinity in all: {count}, the first in picked "
                f"sample {first[0]} at {first[1]}"
            )
        return values


def _contiguous(values: Array) -> Array:
    return values if values.flags.c_contiguous else converted(values, values.dtype)


def _covered(node: Node) -> str:
    """What an int8 input can hold, which tells how its pixels were scaled."""
    quant = node.type.quant
    if quant is None or quant.axis is not None or node.type.dtype is not DType.I8:
        return ""
    low, high = ((code - quant.zero_point) * quant.scale for code in DType.I8.limits)
    return f" (its input holds {low:.4g} to {high:.4g})"


def _layout_hint(found: Shape, wanted: Shape) -> str:
    """What to do when the samples seem to be in the other image layout."""
    if len(found) == len(wanted) == 3 and found == (wanted[1], wanted[2], wanted[0]):
        return "; these look like channels-last images: numpy.moveaxis(x, -1, 1)"
    if len(found) == len(wanted) == 3 and found == (wanted[2], wanted[0], wanted[1]):
        return "; these look like channels-first images: numpy.moveaxis(x, 1, -1)"
    return ""
