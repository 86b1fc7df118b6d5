"""A fault's registers, told to a person: what happened, in which function, on which source line."""

from __future__ import annotations

from pathlib import Path

from elftools.common.exceptions import ELFError

from rlx_edge.device.protocol import Fault
from rlx_edge.device.symbols import find_source_line, find_symbol

# Bits of the Configurable Fault Status Register (Armv7-M and Armv8-M Mainline), the telling ones first.
_CFSR = (
    (1 << 25, "division by zero"),
    (1 << 24, "unaligned access"),
    (1 << 20, "stack overflow"),
    (1 << 19, "coprocessor disabled (the FPU is off)"),
    (1 << 18, "bad return address"),
    (1 << 17, "jump to code that is not Thumb"),
    (1 << 16, "undefined instruction"),
    (1 << 12, "stack overflow (the stack could not be written)"),
    (1 << 4, "stack overflow (the stack could not be written)"),
    (1 << 10, "bus error on an earlier write"),
    (1 << 9, "bus error"),
    (1 << 8, "bus error fetching an instruction"),
    (1 << 1, "access that the MPU forbids"),
    (1 << 0, "execution that the MPU forbids"),
)
_BFAR_VALID = 1 << 15


def describe(fault: Fault, elf: Path | None) -> str:
    """One phrase, such as `bus error at address 0xdead0000 in conv_rows (rlx_conv2d.c:88), called from ...`."""
    unknown = "HardFault" if fault.pc else "stack overflow (the registers could not be saved)"
    cause = next((text for bit, text in _CFSR if fault.cfsr & bit), unknown)
    if _below_stack(fault, elf):
        cause = "stack overflow (the stack pointer is below the stack)"
    if fault.cfsr & _BFAR_VALID:
        cause += f" at address 0x{fault.bfar:08x}"
    if not fault.pc:
        return f"{cause} at an unknown place"
    caller = f", called from {_place(elf, (fault.lr & ~1) - 2)}" if _is_code(fault.lr) else ""
    return f"{cause} in {_place(elf, fault.pc)}{caller}"


def _below_stack(fault: Fault, elf: Path | None) -> bool:
    """Whether the stack had left its memory: cores without CFSR do not tell, nor do others where memory lies below."""
    try:
        limit = None if elf is None else find_symbol(elf, "__stack_limit")
    except (OSError, ELFError):
        return False
    return limit is not None and fault.sp < limit


def _is_code(lr: int) -> bool:
    """Whether LR holds a return address, rather than nothing or the mark of an exception return."""
    return 0 < lr < 0xF0000000


def _place(elf: Path | None, address: int) -> str:
    """A code address as function and line, or as the bare address where the ELF file cannot tell."""
    bare = f"code at 0x{address:08x}"
    if elf is None:
        return bare
    try:
        line = find_source_line(elf, address)
    except (OSError, ELFError):
        return bare
    return bare if line is None else f"{line.function or '?'} ({line.file}:{line.line})"
