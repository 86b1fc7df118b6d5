"""Why a device does not compute what the laptop computed: the kinds of causes, and what to do about each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """What was found: one of the kinds below, and what shows it, in one sentence without its full stop."""

    kind: str
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """Why a sample parts: `cause` and `why` (one sentence), and what to do. Where a tensor was found: its name on the
    device, the step that makes it, the first element that differs and the numbers behind that element."""

    cause: str
    why: str
    advice: str
    tensor: str = ""
    step: int | None = None
    element: tuple[int, ...] = ()
    account: tuple[tuple[str, str], ...] = ()


# The kinds, as they are reported, and what to do about each.
ADVICE = {
    "different weights": "flash the build again: rlx-edge flash BUILD",
    "stale firmware": "flash the build again: rlx-edge flash BUILD",
    "damaged flash": "flash the build again: rlx-edge flash BUILD",
    "different rounding": "compile the kernels of the bundle unchanged, with a compiler that keeps to C11",
    "padding": "compile the C of the bundle unchanged",
    "zero point": "compile the C of the bundle unchanged",
    "saturation": "compile the C of the bundle unchanged",
    "overflow": "compile the C of the bundle unchanged, without flags that narrow int",
    "overlapping memory": "generate the bundle anew; where it stays, report it as a bug of rlx-edge",
    "memory corruption": "look for an interrupt, a DMA transfer or a pointer that writes there",
    "stack overrun": "reserve more stack (stack_bytes in the board file)",
    "not repeatable": "look at power supply, clock, flash wait states, and at what else writes to the arena",
    "host C differs": "report it as a bug of rlx-edge, with the model and the host's compiler",
    "reference differs": "report it as a bug of rlx-edge, with the model",
    "undecided": "run parity again, and on other samples, where more values differ",
    "another kernel": "compile the C of the bundle unchanged; where that was so, report it with the bundle",
}
