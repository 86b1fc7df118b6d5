"""Which of the device's tensors are compared: the outputs, every layer, or some, up to a step."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from rlx_edge.cgen.plan import Tensor
from rlx_edge.device.link import Link
from rlx_edge.device.protocol import LayerInfo, ModelInfo, TensorInfo
from rlx_edge.errors import EdgeError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Scope:
    """What is compared: the outputs after a run; with `layers` every tensor of the lowered graph, as its step completes
    it. `until` names the last tensor, `only` the single one to compare, as the device calls them."""

    layers: bool = False
    until: str | None = None
    only: str | None = None

    @property
    def stepwise(self) -> bool:
        return self.layers or self.until is not None or self.only is not None

    def wants(self, tensor: TensorInfo) -> bool:
        return self.only is None or tensor.name == self.only


OUTPUTS, LAYERS = Scope(), Scope(layers=True)


def find_layer(tensors: Sequence[Tensor], names: Mapping[str, str], wanted: str) -> str:
    """The device's name of the tensor that a person calls `wanted`: by its name in the lowered graph, on the device or
    in the source model, or by a part of one that no other tensor has. `names`: the device's names by those of the
    graph. Raises EdgeError naming others that are close."""
    called = {
        names[tensor.name]: (tensor.name, names[tensor.name], *tensor.sources)
        for tensor in sorted(tensors, key=lambda tensor: tensor.step or 0)
        if tensor.step is not None
    }
    whole = [name for name, others in called.items() if wanted in others]
    if whole:
        return whole[-1]  # of several nodes that compute a source's tensor, the last has all of it
    partly = [name for name, others in called.items() if any(wanted in other for other in others)]
    if len(partly) == 1:
        return partly[0]
    close = partly[:3] or difflib.get_close_matches(wanted, called, n=3, cutoff=0.3)
    shown = "; ".join(map(repr, close))
    if partly:
        more = f"; and {len(partly) - len(close)} more" if len(partly) > len(close) else ""
        raise EdgeError(f"several tensors are called like {wanted!r}: {shown}{more}")
    raise EdgeError(f"no layer makes a tensor like {wanted!r}{f'; did you mean {shown}?' if shown else ''}")


def compared_tensors(
    link: Link, model: ModelInfo, layers: Sequence[LayerInfo], scope: Scope
) -> Iterator[tuple[TensorInfo, Array]]:
    """Runs the model on inputs that were written and yields what the device computed, as soon as it is there. Of a
    tensor that only exists row by row these are the rows that were made, from the first on: perhaps not all."""
    if not scope.stepwise:
        link.run(model)
        yield from ((tensor, link.read_tensor(model, tensor)) for tensor in model.outputs)
        return
    last = last_step(model, scope)
    for layer in layers[: last + 1]:
        made = [tensor for tensor in model.tensors if tensor.step == layer.step and scope.wants(tensor)]
        if layer.rows and any(tensor.rows for tensor in made):
            within = link.step_rows(model, layer)
        else:
            within = {}
            link.step(model, layer.step)
        for tensor in sorted(made, key=lambda tensor: tensor.rows == 0):  # what is within a stage comes first
            yield tensor, within[tensor.index] if tensor.rows else link.read_tensor(model, tensor)
            if tensor.name == scope.until:
                return


def count_compared(model: ModelInfo, scope: Scope) -> int:
    """How many tensors `compared_tensors` yields."""
    last = last_step(model, scope)
    made = [tensor for tensor in model.tensors if tensor.step is not None and tensor.step <= last]
    if scope.until is not None:  # in its own step it may not be the last
        final = [tensor for tensor in made if tensor.step == last]
        final.sort(key=lambda tensor: tensor.rows == 0)
        names = [tensor.name for tensor in final]
        return len(made) - len(names) + names.index(scope.until) + 1
    return sum(map(scope.wants, made))


def last_step(model: ModelInfo, scope: Scope) -> int:
    """The last step that has to run."""
    name = scope.only or scope.until
    steps = [tensor.step for tensor in model.tensors if tensor.name == name and tensor.step is not None]
    return steps[0] if steps else model.steps - 1
