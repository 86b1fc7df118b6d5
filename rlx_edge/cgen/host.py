"""Run a bundle's C on the host: the same files that go to the device, compiled and loaded through cffi."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import cffi
import numpy as np

from rlx_edge.cgen.bundle import BundledModel
from rlx_edge.cgen.compile_host import FLAGS, compile_shared
from rlx_edge.cgen.plan import Plan, Tensor
from rlx_edge.errors import DataError, ToolError
from rlx_edge.ir import Array
from rlx_edge.resources import firmware_dir

_CDEF = """
void rlx_host_run(const void *model, uint8_t *arena, uint32_t count, const uint8_t *const *inputs,
                  uint8_t *const *outputs, uint8_t *tensors);
"""


GUARD = 256


class HostModel:
    """A model of a bundle, ready to run on the host.

    `memory` is the arena with GUARD bytes of nobody's before and behind it. Raises ToolError when there is no C
    compiler or when it refuses the code.
    """

    def __init__(self, model: BundledModel, flags: Sequence[str] = FLAGS) -> None:
        host = firmware_dir() / "host"
        sources = [*model.sources, host / "rlx_host.c"]
        library = compile_shared(sources, [model.bundle / "rlx", host], flags)
        self.model = model
        self.plan = model.plan
        self._ffi = cffi.FFI()
        self._ffi.cdef(_CDEF + f"extern char {model.name}_model[1]; int {model.name}_weights_ok(void);")
        try:
            self._lib = self._ffi.dlopen(str(library))
        except OSError as error:
            lacking = re.search(r"undefined symbol: (\w+)", str(error))
            what = f"no file defines {lacking[1]}" if lacking else error
            raise ToolError(f"the C of {model.name} does not load: {what}") from None
        if not getattr(self._lib, f"{model.name}_weights_ok")():
            raise ToolError(f"the constants of {model.name} do not match their checksum after compilation")
        self._descriptor = self._ffi.addressof(self._lib, f"{model.name}_model")
        self._partial = partial_tensors(self.plan)
        # numpy aligns to 16 at least only by chance, so the arena starts at the first aligned byte after the guard.
        room = np.zeros(self.plan.arena_bytes + 2 * GUARD + 16, np.uint8)
        start = GUARD + -room.ctypes.data % 16
        self.memory = room[start - GUARD : start + self.plan.arena_bytes + GUARD]
        self._arena = room[start : start + self.plan.arena_bytes]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run samples: each input is [samples, *shape without its batch of 1] or [samples, *shape]; outputs likewise.

        Returns arrays [samples, *output shape] by output name. Raises DataError for a missing input or a wrong shape.
        """
        outputs, _ = self._run(inputs, keep=False)
        return outputs

    def run_tapped(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Like run, but returns every tensor of the plan by name, model inputs included; of those within stages the
        ones that are made whole."""
        _, tensors = self._run(inputs, keep=True)
        return {name: values for name, values in tensors.items() if name not in self._partial}

    def _run(self, inputs: Mapping[str, Array], keep: bool) -> tuple[dict[str, Array], dict[str, Array]]:
        input_tensors = self.plan.tensors[: len(self.plan.graph.inputs)]
        output_tensors = [self.plan.tensors[i] for i in self.plan.outputs]
        given = [_samples(tensor, inputs) for tensor in input_tensors]
        counts = {len(array) for array in given}
        if len(counts) != 1:
            raise DataError(f"the inputs have different numbers of samples: {sorted(counts)}")
        count = counts.pop()
        made = [np.empty((count, *t.type.shape), t.type.dtype.numpy) for t in output_tensors]
        all_bytes = sum(tensor.type.bytes for tensor in self.plan.all_tensors)
        kept = np.zeros((count, all_bytes) if keep else (0, 0), np.uint8)
        pointer = self._ffi.from_buffer
        self._lib.rlx_host_run(
            self._descriptor,
            pointer("uint8_t[]", self._arena, require_writable=True),
            count,
            [pointer("uint8_t[]", array) for array in given],
            [pointer("uint8_t[]", array, require_writable=True) for array in made],
            pointer("uint8_t[]", kept, require_writable=True) if keep else self._ffi.NULL,
        )
        outputs = {tensor.name: array for tensor, array in zip(output_tensors, made, strict=True)}
        return outputs, _split(kept, self.plan.all_tensors) if keep else {}


def partial_tensors(plan: Plan) -> frozenset[str]:
    """The tensors within stages of which some rows are never made, as nothing depends on them."""
    made = Counter(call.output.base for step in plan.steps if step.lines for call in step.calls)
    lines = [(tensor, line) for step in plan.steps for tensor, line in step.lines.items()]
    nodes = plan.graph.nodes
    return frozenset(nodes[i].name for i, line in lines if i < len(nodes) and made[i] < line.of)


def _samples(tensor: Tensor, inputs: Mapping[str, Array]) -> Array:
    """The samples of one input as a contiguous array [samples, *shape]."""
    array = inputs.get(tensor.name)
    if array is None:
        raise DataError(f"no values for the input {tensor.name!r}; given: {', '.join(inputs) or 'nothing'}")
    shape = tensor.type.shape
    fits = array.shape[1:] in (shape, shape[1:] if shape[:1] == (1,) else shape)
    if array.dtype != tensor.type.dtype.numpy or not fits or len(array) == 0:
        raise DataError(
            f"input {tensor.name!r} takes samples of {tensor.type}, but {array.dtype}{list(array.shape)} was given"
        )
    return np.ascontiguousarray(array).reshape(len(array), *shape)


def _split(kept: Array, tensors: Sequence[Tensor]) -> dict[str, Array]:
    found, offset = {}, 0
    for tensor in tensors:
        raw = np.ascontiguousarray(kept[:, offset : offset + tensor.type.bytes])
        found[tensor.name] = raw.view(tensor.type.dtype.numpy).reshape(len(kept), *tensor.type.shape)
        offset += tensor.type.bytes
    return found
