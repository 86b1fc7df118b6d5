"""How many instructions each step of a model takes, counted on an emulated board.

QEMU's clock then advances by a fixed time an instruction, so that the counter of the board counts instructions, the
same number in every run. Instructions are not cycles: what a board's memory and pipeline add is not in the figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from rlx_edge.cgen.predict import Prediction
from rlx_edge.device.boards import Board
from rlx_edge.device.build import Firmware
from rlx_edge.device.emulator import ICOUNT_SHIFT, Emulator
from rlx_edge.device.link import Link
from rlx_edge.errors import DeviceError


@dataclass(frozen=True)
class LayerProfile:
    """One step: the tensor it completes, its IR kind, multiply-accumulates, instructions (its call included).

    `predicted_instructions` is None where the cost model knows nothing of the core.
    """

    name: str
    op: str
    macs: int
    instructions: int
    predicted_instructions: int | None = None
    variant: str = ""


@dataclass(frozen=True)
class Profile:
    """The cost of one model on one board. `dataclasses.asdict` gives the keys of `rlx-edge profile --json`.

    Bytes of flash and RAM are those of models, kernels and start-up; the link's are apart. `stack_bytes` is the
    deepest stack that any step used, measured.
    """

    board: str
    model: str
    instructions: int
    flash_bytes: int
    ram_bytes: int
    stack_bytes: int
    link_flash_bytes: int
    link_ram_bytes: int
    layers: tuple[LayerProfile, ...]
    predicted_instructions: int | None = None

    def beside(self, prediction: Prediction | None) -> Profile:
        """The same with what was predicted of each layer."""
        if prediction is None:
            return self
        layers = tuple(
            replace(layer, predicted_instructions=told.instructions, variant=told.variant)
            for layer, told in zip(self.layers, prediction.layers, strict=True)
        )
        return replace(self, layers=layers, predicted_instructions=prediction.instructions)


def ticks_to_instructions(ticks: int, count_hz: int) -> int:
    """Instructions from ticks of a counter that runs at `count_hz`, in an emulator started with `icount=True`."""
    nanoseconds = 1_000_000_000 * ticks
    each = count_hz << ICOUNT_SHIFT
    return (nanoseconds + each // 2) // each


def profile_emulated(
    board: Board,
    firmware: Firmware,
    model: str | None = None,
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Profile:
    """Runs one inference of `model` (the first one by default) in the emulator and counts each step's instructions.

    `inputs` by tensor name, in the model's own dtypes; zeros by default. Raises `ToolError` when the emulator does
    not start, `DeviceError` when the firmware does not answer or was built for another board.
    """
    if firmware.board != board.name:
        raise DeviceError(f"{firmware.elf.parent}: was built for {firmware.board}, not {board.name}; build it again")
    with (
        Emulator(board, firmware.elf, icount=True) as emulator,
        Link.open(emulator.port, board.baud, elf=firmware.elf) as link,
    ):
        hz = link.hello().count_hz
        info = link.model(model or firmware.models[0])
        steps = link.profile(info, inputs)
    layers = tuple(
        LayerProfile(
            name=step.layer.name,
            op=step.layer.op,
            macs=step.layer.macs,
            instructions=ticks_to_instructions(step.ticks, hz),
        )
        for step in steps
    )
    sizes = firmware.sizes
    return Profile(
        board=board.name,
        model=info.name,
        instructions=sum(layer.instructions for layer in layers),
        flash_bytes=sizes.flash_bytes,
        ram_bytes=sizes.ram_bytes,
        stack_bytes=max((step.stack_bytes for step in steps), default=0),
        link_flash_bytes=sizes.link_flash_bytes,
        link_ram_bytes=sizes.link_ram_bytes,
        layers=layers,
    )
