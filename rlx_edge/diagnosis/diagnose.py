"""From a difference on a device to its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.cgen.bundle import BundledModel
from rlx_edge.cgen.emit import short_names
from rlx_edge.device.causes import ADVICE, Cause, Diagnosis
from rlx_edge.device.compare import Engine
from rlx_edge.device.link import Link
from rlx_edge.device.protocol import TensorInfo
from rlx_edge.diagnosis import follow
from rlx_edge.diagnosis.account import account
from rlx_edge.diagnosis.divergence import Divergence
from rlx_edge.diagnosis.guesses import guess
from rlx_edge.ir import Graph, Node

Array = npt.NDArray[Any]
REFERENCE, HOST = "reference", "host C"


def diagnose(
    link: Link, bundled: BundledModel, inputs: Mapping[str, Array], engines: Mapping[str, Engine]
) -> Diagnosis:
    """Runs one sample again, step by step, as often as it takes.

    inputs: arrays of the model's inputs by the device's names; engines as in `api.engines`. Raises DeviceError for
    trouble on the link.
    """
    model = link.model(bundled.name)
    expected = {name: engine(inputs) for name, engine in engines.items()}
    run = follow.Run(link, model, bundled.plan, link.layers(model), inputs, expected)
    parted = run.first_parted()
    if parted is None:
        gone = Cause("not repeatable", "run again on the same input, the device gives no difference")
        return _told(follow.stack(run, model.steps - 1) or gone)
    tensor, got = parted
    at = _divergence(bundled, run, tensor, got)
    step = tensor.step or 0
    cause = (
        _engines_part(at)
        or follow.stack(run, step)
        or follow.repeats(run, tensor, got)
        or follow.memory(run, at.node, step)
        or guess(at)
    )
    return _told(cause, tensor=tensor.name, step=step, element=at.element, account=account(at))


def _engines_part(at: Divergence) -> Cause | None:
    """Where the laptop's two engines do not agree, the device is not to blame."""
    if at.host is None or np.array_equal(at.host, at.want):
        return None
    got = at.got.reshape(-1)
    if np.array_equal(at.want.reshape(-1)[: got.size], got):
        return Cause("host C differs", "the device has what the reference has, and host C something else")
    if np.array_equal(at.host.reshape(-1)[: got.size], got):
        return Cause("reference differs", "the device has what host C has, and the reference something else")
    return None


def _told(cause: Cause, **facts: Any) -> Diagnosis:
    return Diagnosis(cause.kind, cause.why, ADVICE[cause.kind], **facts)


def _divergence(bundled: BundledModel, run: follow.Run, tensor: TensorInfo, got: Array) -> Divergence:
    graph, names = bundled.plan.graph, short_names(bundled.plan.all_tensors)
    node = next(node for node in graph.nodes if names.get(node.name) == tensor.name)
    want = run.expected[REFERENCE][tensor.name]
    shaped = got.view(want.dtype)
    return Divergence(
        graph,
        node,
        tuple(_value(graph, operand, names, run) for operand in graph.operands(node)),
        want,
        run.expected[HOST].get(tensor.name),
        shaped.reshape(want.shape) if shaped.size == want.size else shaped.reshape(-1),
    )


def _value(graph: Graph, operand: Node, names: Mapping[str, str], run: follow.Run) -> Array:
    constant = graph.constant(operand)
    if constant is not None:
        return constant
    name = names[operand.name]
    given = run.expected[REFERENCE].get(name)
    if given is None:  # a model input
        return np.asarray(run.inputs[name]).reshape(operand.type.shape)
    return given
