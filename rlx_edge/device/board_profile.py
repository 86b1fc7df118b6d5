"""What each step of a model costs on a board that is connected: ticks of its counter, and stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from rlx_edge.cgen.predict import Prediction
from rlx_edge.device.firmware import ExpectedFirmware, check_firmware
from rlx_edge.device.link import Link
from rlx_edge.errors import DeviceError


@dataclass(frozen=True)
class BoardLayer:
    """One step: the tensor it completes, its IR kind, multiply-accumulates, cycles, bytes of stack that it used, and
    the instructions that the cost model predicts (None where it does not know the core)."""

    name: str
    op: str
    macs: int
    cycles: int
    stack_bytes: int
    predicted_instructions: int | None


@dataclass(frozen=True)
class BoardProfile:
    """One run on a board. `cycles` are ticks of its counter, which runs at `count_hz`: the core's clock, on all boards
    of this project. `stack_bytes`: the deepest stack of any step; `stack_left_bytes`: what no step ever touched; None
    where the firmware does not measure it."""

    board: str
    model: str
    cycles: int
    count_hz: int
    stack_bytes: int | None
    stack_left_bytes: int | None
    layers: tuple[BoardLayer, ...]


def profile_board(
    link: Link,
    model: str,
    expected: ExpectedFirmware,
    predicted: Prediction | None = None,
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> BoardProfile:
    """Runs one inference step by step, on zeros unless inputs are given by tensor name.

    Raises DeviceError for trouble on the link, other firmware, and firmware without a counter.
    """
    info = link.model(model)
    check_firmware(link, info, expected)
    hz = link.device.count_hz
    if not hz:
        raise DeviceError(f"{link.port}: the firmware has no counter: give rlx_link_port_t count_start and count_stop")
    told = [layer.instructions for layer in predicted.layers] if predicted else [None] * info.steps
    steps = link.profile(info, inputs)
    layers = tuple(
        BoardLayer(step.layer.name, step.layer.op, step.layer.macs, step.ticks, step.stack_bytes, instructions)
        for step, instructions in zip(steps, told, strict=True)
    )
    left = [step.stack_left for step in steps if step.stack_left is not None]
    return BoardProfile(
        board=link.device.device,
        model=info.name,
        cycles=sum(layer.cycles for layer in layers),
        count_hz=hz,
        stack_bytes=max(layer.stack_bytes for layer in layers) if left else None,
        stack_left_bytes=min(left) if left else None,
        layers=layers,
    )
