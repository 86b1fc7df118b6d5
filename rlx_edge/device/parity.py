"""Parity: what the device computes, compared with what other engines compute, tensor by tensor, bit by bit.

An engine is a function from one sample's inputs to its tensors, both by name; the host's C code and the numpy reference
are engines. Every byte that the device gives is compared with every engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from rlx_edge.device.causes import Diagnosis
from rlx_edge.device.compare import Difference, Engine, Tally, expected_of
from rlx_edge.device.firmware import ExpectedFirmware, check_firmware
from rlx_edge.device.link import Link
from rlx_edge.device.protocol import ModelInfo, TensorInfo
from rlx_edge.device.scope import LAYERS, OUTPUTS, Scope, compared_tensors, count_compared
from rlx_edge.errors import DataError

Array = npt.NDArray[Any]
Observe = Callable[[TensorInfo, Array], None]


@dataclass(frozen=True)
class TensorRow:
    """All comparisons of one tensor with one engine; bytes over all samples. `by_rows`: some rows exist at a time."""

    engine: str
    tensor: str
    by_rows: bool
    compared_bytes: int
    differing_bytes: int


@dataclass(frozen=True)
class ParityResult:
    """The outcome. `inputs` counts samples; bytes count every comparison, so that two engines compare each byte twice.
    `first_parted` is set on a difference: the first tensor, in the order of the steps, that differs on the sample of
    `first_difference`. `skipped` names tensors that were read but that no engine knows. `stands_for`: the source
    model's tensors that a tensor computes, by its name on the device. `diagnosis`: the reason of the difference."""

    board: str
    inputs: int
    compared_bytes: int
    differing_bytes: int
    rows: tuple[TensorRow, ...]
    first_difference: Difference | None
    first_parted: Difference | None
    skipped: tuple[str, ...]
    stands_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None

    @property
    def exact(self) -> bool:
        """Whether bytes were compared and none differs."""
        return self.compared_bytes > 0 and self.differing_bytes == 0


def run_parity(
    link: Link,
    model_name: str,
    inputs: Mapping[str, Array],
    engines: Mapping[str, Engine],
    *,
    scope: Scope = OUTPUTS,
    firmware: ExpectedFirmware | None = None,
    progress: Callable[[int, int], None] | None = None,
    observe: Observe | None = None,
) -> ParityResult:
    """Runs every sample on the device and compares what `scope` names with all engines'.

    inputs: one array per model input, by name: [N, ...] of the input's dtype, each sample with as many elements as the
    tensor. An engine gets `{name: array[i]}` and returns tensors by name: the outputs at least, the others as far as it
    knows them. progress(done, total) is called after each sample, or each tensor where single ones are compared;
    observe(tensor, values) with all that is compared as a whole.
    On a difference, the sample is run again step by step to find the first tensor that parts.
    Raises DataError for inputs that do not fit, DeviceError for wrong firmware and for trouble on the link.
    """
    device = link.hello()
    model = link.model(model_name)
    if firmware is not None:
        check_firmware(link, model, firmware)
    samples = _count_samples(model, inputs)
    layers = link.layers(model) if scope.stepwise else ()
    each = count_compared(model, scope)
    tally = Tally()
    for index in range(samples):
        sample = {name: data[index] for name, data in inputs.items()}
        expected = {name: engine(sample) for name, engine in engines.items()}
        _require_outputs(model, expected)
        link.write_inputs(model, sample)
        for done, (tensor, got) in enumerate(compared_tensors(link, model, layers, scope), start=1):
            tally.compare(expected, index, tensor, got)
            if observe is not None and got.nbytes == tensor.bytes:
                observe(tensor, got)
            if progress is not None and scope.stepwise:
                progress(index * each + done, samples * each)
        if progress is not None and not scope.stepwise:
            progress(index + 1, samples)
    parted = None if tally.first is None else _first_parted(link, model, inputs, engines, tally.first.sample)
    by_rows = {tensor.name for tensor in model.tensors if tensor.rows}
    rows = tuple(TensorRow(engine, name, name in by_rows, *count) for (engine, name), count in tally.counts.items())
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
            if expected_of(tensors, output) is None:
                raise DataError(f"{model.name}: {engine} gave no output {output.name!r}; it gave: {', '.join(tensors)}")


def _first_parted(
    link: Link, model: ModelInfo, inputs: Mapping[str, Array], engines: Mapping[str, Engine], index: int
) -> Difference | None:
    """The first tensor that parts on one sample, in the order of the steps. None when it does not part this time: then
    the device does not compute the same twice."""
    sample = {name: data[index] for name, data in inputs.items()}
    expected = {name: engine(sample) for name, engine in engines.items()}
    tally = Tally()
    link.write_inputs(model, sample)
    for tensor, got in compared_tensors(link, model, link.layers(model), LAYERS):
        if tally.compare(expected, index, tensor, got) is not None:
            break
    return tally.first
