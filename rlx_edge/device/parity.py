"""Parity: what the device computes, compared with what other engines compute, tensor by tensor, bit by bit.

An engine is a function from one sample's inputs to its tensors, both by name; the host's C code and the numpy reference
are engines. Every byte that the device gives is compared with every engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.device.link import Link
from rlx_edge.device.protocol import ModelInfo, TensorInfo
from rlx_edge.errors import DataError, DeviceError

Array = npt.NDArray[Any]
Sample = Mapping[str, Array]
Engine = Callable[[Sample], Mapping[str, Array]]
Observe = Callable[[TensorInfo, Array], None]


@dataclass(frozen=True)
class ExpectedFirmware:
    """What a build says of its firmware: hashes of the models (32 hex digits, by name), and zlib's CRC-32 over the
    image in flash, or None where another build made the image."""

    model_hashes: Mapping[str, str]
    image_crc: int | None


@dataclass(frozen=True)
class Difference:
    """The first element in which the device differs: `index` into the tensor of one sample."""

    engine: str
    sample: int
    tensor: str
    index: tuple[int, ...]
    expected: int | float
    got: int | float

    def __str__(self) -> str:
        place = f"{self.tensor}[{', '.join(map(str, self.index))}]"
        return f"sample {self.sample}: {place} is {self.got} on the device, {self.expected} by {self.engine}"


@dataclass(frozen=True)
class TensorRow:
    """All comparisons of one tensor with one engine; bytes over all samples."""

    engine: str
    tensor: str
    compared_bytes: int
    differing_bytes: int


@dataclass(frozen=True)
class ParityResult:
    """The outcome. `inputs` counts samples; bytes count every comparison, so that two engines compare each byte twice.
    `skipped` names tensors that were read but that no engine knows. `first_parted` is set on a difference: the first
    tensor, in the order of the steps, that differs on the sample of `first_difference`."""

    board: str
    inputs: int
    compared_bytes: int
    differing_bytes: int
    rows: tuple[TensorRow, ...]
    first_difference: Difference | None
    first_parted: Difference | None
    skipped: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether bytes were compared and none differs."""
        return self.compared_bytes > 0 and self.differing_bytes == 0


@dataclass
class _Tally:
    """Counts while the samples pass."""

    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    first: Difference | None = None
    skipped: dict[str, None] = field(default_factory=dict)

    def add(self, engine: str, tensor: str, compared: int, difference: Difference | None, differing: int) -> None:
        count = self.counts.setdefault((engine, tensor), [0, 0])
        count[0] += compared
        count[1] += differing
        if self.first is None:
            self.first = difference


def check_firmware(link: Link, model: ModelInfo, expected: ExpectedFirmware) -> None:
    """Raises DeviceError unless the device runs the firmware of that build, with the weights undamaged."""
    device = link.device
    wanted = expected.model_hashes.get(model.name)
    if wanted is None:
        names = ", ".join(expected.model_hashes)
        raise DeviceError(f"the build has no model {model.name!r}; it has: {names}")
    if model.hash != wanted:
        raise DeviceError(
            f"{link.port}: the device runs another version of {model.name!r} "
            f"(hash {model.hash[:12]}, the build's is {wanted[:12]}): flash the build again"
        )
    if device.image_bytes and expected.image_crc is not None and device.image_crc != expected.image_crc:
        raise DeviceError(
            f"{link.port}: the device's firmware is not the build's (CRC {device.image_crc:08x} over "
            f"{device.image_bytes} bytes, the build's is {expected.image_crc:08x}): flash the build again"
        )
    if not model.weights_ok:
        raise DeviceError(
            f"{link.port}: the weights of {model.name!r} in the device's flash are damaged: flash the build again"
        )


def run_parity(
    link: Link,
    model_name: str,
    inputs: Mapping[str, Array],
    engines: Mapping[str, Engine],
    *,
    taps: bool = False,
    firmware: ExpectedFirmware | None = None,
    progress: Callable[[int, int], None] | None = None,
    observe: Observe | None = None,
) -> ParityResult:
    """Runs every sample on the device and compares the outputs, or with `taps` every tensor, with all engines'.

    inputs: one array per model input, by name: [N, ...] of the input's dtype, each sample with as many elements as the
    tensor. An engine gets `{name: array[i]}` and returns tensors by name: the outputs at least, the others as far as it
    knows them. progress(done, total) is called after each sample, observe(tensor, values) with all that is compared.
    On a difference in the outputs, the sample is run again step by step to find the first tensor that parts.
    Raises DataError for inputs that do not fit, DeviceError for wrong firmware and for trouble on the link.
    """
    device = link.hello()
    model = link.model(model_name)
    if firmware is not None:
        check_firmware(link, model, firmware)
    samples = _count_samples(model, inputs)
    tally = _Tally()
    for index in range(samples):
        sample = {name: data[index] for name, data in inputs.items()}
        expected = {name: engine(sample) for name, engine in engines.items()}
        _require_outputs(model, expected)
        for tensor, got in _tensors(link, model, sample, taps=taps):
            _compare(tally, expected, index, tensor, got)
            if observe is not None:
                observe(tensor, got)
        if progress is not None:
            progress(index + 1, samples)
    parted = None if tally.first is None else _first_parted(link, model, inputs, engines, tally.first.sample)
    rows = tuple(TensorRow(engine, tensor, *count) for (engine, tensor), count in tally.counts.items())
    return ParityResult(
        board=device.device,
        inputs=samples,
        compared_bytes=sum(row.compared_bytes for row in rows),
        differing_bytes=sum(row.differing_bytes for row in rows),
        rows=rows,
        first_difference=tally.first,
        first_parted=parted,
        skipped=tuple(tally.skipped),
    )


def _count_samples(model: ModelInfo, inputs: Mapping[str, Array]) -> int:
    counts = {data.shape[0] if data.ndim else 0 for data in inputs.values()}
    if len(counts) != 1:
        raise DataError(f"{model.name}: the inputs have different numbers of samples: {sorted(counts)}")
    samples = counts.pop()
    if samples == 0:
        raise DataError(f"{model.name}: no samples were given, so nothing can be compared")
    return samples


def _require_outputs(model: ModelInfo, expected: Mapping[str, Mapping[str, Array]]) -> None:
    if not expected:
        raise DataError(f"{model.name}: no engine was given to compare the device with")
    for engine, tensors in expected.items():
        for output in model.outputs:
            if _expected_of(tensors, output) is None:
                raise DataError(f"{model.name}: {engine} gave no output {output.name!r}; it gave: {', '.join(tensors)}")


def _tensors(link: Link, model: ModelInfo, sample: Sample, *, taps: bool) -> Iterable[tuple[TensorInfo, Array]]:
    """Runs one sample and yields what the device computed: the outputs, or every tensor after its step."""
    link.write_inputs(model, sample)
    if not taps:
        link.run(model)
        yield from ((tensor, link.read_tensor(model, tensor)) for tensor in model.outputs)
        return
    for step in range(model.steps):
        link.step(model, step)
        yield from ((tensor, link.read_tensor(model, tensor)) for tensor in model.tensors if tensor.step == step)


def _expected_of(tensors: Mapping[str, Array], tensor: TensorInfo) -> Array | None:
    if not tensor.name_cut:
        return tensors.get(tensor.name)
    return next((data for name, data in tensors.items() if tensor.matches(name)), None)


def _compare(
    tally: _Tally, expected: Mapping[str, Mapping[str, Array]], sample: int, tensor: TensorInfo, got: Array
) -> None:
    known = False
    for engine, tensors in expected.items():
        want = _expected_of(tensors, tensor)
        if want is None:
            continue
        known = True
        want = np.ascontiguousarray(want)
        if want.nbytes != tensor.bytes or want.dtype.itemsize != got.dtype.itemsize:
            raise DataError(
                f"{engine} gives {tensor.name!r} as {want.dtype} of shape {want.shape}, "
                f"the device as {got.dtype} of shape {got.shape}"
            )
        unequal = np.frombuffer(want.tobytes(), np.uint8) != np.frombuffer(got.tobytes(), np.uint8)
        differing = int(np.count_nonzero(unequal))
        difference = None
        if differing:
            difference = _difference(engine, sample, tensor, want, got, int(np.argmax(unequal)) // want.dtype.itemsize)
        tally.add(engine, tensor.name, tensor.bytes, difference, differing)
    if not known:
        tally.skipped[tensor.name] = None


def _difference(engine: str, sample: int, tensor: TensorInfo, want: Array, got: Array, element: int) -> Difference:
    index = tuple(int(part) for part in np.unravel_index(element, want.shape)) if want.ndim else ()
    return Difference(
        engine=engine,
        sample=sample,
        tensor=tensor.name,
        index=index,
        expected=want.reshape(-1)[element].item(),
        got=got.reshape(-1)[element].item(),
    )


def _first_parted(
    link: Link, model: ModelInfo, inputs: Mapping[str, Array], engines: Mapping[str, Engine], index: int
) -> Difference | None:
    """The first tensor that parts on one sample, in the order of the steps. None when it does not part this time: then
    the device does not compute the same twice."""
    sample = {name: data[index] for name, data in inputs.items()}
    expected = {name: engine(sample) for name, engine in engines.items()}
    tally = _Tally()
    for tensor, got in _tensors(link, model, sample, taps=True):
        _compare(tally, expected, index, tensor, got)
        if tally.first is not None:
            return tally.first
    return None
