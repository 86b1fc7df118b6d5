"""The C files that the build writes itself: the board's numbers, the model table, the bare main()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rlx_edge.device.boards import Board
from rlx_edge.device.buffers import ring_bytes


def board_header(board: Board) -> str:
    """`rlx_board.h`: what firmware/soc/ needs to know about the board."""
    lines = [
        f"/* Written by rlx-edge from boards/{board.name}.toml and boards/chips/{board.chip.name}.toml. */",
        "#ifndef RLX_BOARD_H",
        "#define RLX_BOARD_H",
        "",
        f'#define RLX_BOARD_NAME "{board.name}"',
        f"#define RLX_CHIP_UID_WORDS {board.chip.uid.words if board.chip.uid else 0}",
        f"#define RLX_CHIP_UID_ADDRESS 0x{board.chip.uid.address if board.chip.uid else 0:08x}u",
        f"#define RLX_CORE_HZ {board.core_hz}u",
        f"#define RLX_UART_BASE 0x{board.uart.address:08x}u",
        f"#define RLX_UART_IRQ {board.uart.irq}u",
        f"#define RLX_UART_HZ {board.uart_hz}u",
        f"#define RLX_UART_BAUD {board.baud}u",
        f"#define RLX_UART_DIVIDER_SCALE {board.uart.divider_scale}u",
        f"#define RLX_UART_RING_BYTES {ring_bytes(board)}u",
        "",
        "/* Steps of rlx_board_setup.c; whether the core has caches to turn on. */",
        f"#define RLX_SETUP_STEPS {len(board.setup)}",
        f"#define RLX_CORE_CACHES {int(board.chip.caches)}",
    ]
    if board.pins is not None:
        lines += [f"#define RLX_UART_TX_PIN {board.pins.tx}u", f"#define RLX_UART_RX_PIN {board.pins.rx}u"]
    if board.chip.reset_cause is not None:
        for name, number in asdict(board.chip.reset_cause).items():
            lines += [f"#define RLX_RESET_CAUSE_{name.upper()} 0x{number:08x}u"]
    lines += [
        "",
        "/* Whether rlx_soc_exit() ends the emulator; on hardware without a debugger that would be a fault. */",
        "#ifndef RLX_SEMIHOSTING",
        f"#define RLX_SEMIHOSTING {int(board.purely_emulated)}",
        "#endif",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def board_setup(board: Board) -> str:
    """`rlx_board_setup.c`: the steps that bring the chip to speed and connect its UART, for firmware/soc/setup.c."""
    lines = [
        f"/* Written by rlx-edge from boards/{board.name}.toml and boards/chips/{board.chip.name}.toml. */",
        '#include "soc_parts.h"',
        "",
        "const rlx_setup_step_t rlx_setup_steps[RLX_SETUP_STEPS] = {",
        *[
            f"    {{RLX_SETUP_{step.kind.upper()}, 0x{step.register.address:08x}u, 0x{step.mask:08x}u, "
            f"0x{step.value:08x}u}}, /* {step.register.name} ({step.register.manual}): {step.why} */"
            for step in board.setup
        ],
        "};",
    ]
    return "\n".join(lines) + "\n"


def model_table(models: Sequence[str]) -> str:
    """`rlx_app_models.c`: the models that the application serves, and one arena that fits the largest of them."""
    sizes = {name: f"{name.upper()}_ARENA_BYTES" for name in models} or {"none": "16u"}
    arenas = [f"    RLX_ALIGNAS(16) uint8_t {name}[{size}];" for name, size in sizes.items()]
    entries = ", ".join(f"&{name}_model" for name in models) or "0"
    lines = [
        "/* Written by rlx-edge: the models of this image. */",
        '#include "rlx.h"',
        *_includes(models),
        "",
        "typedef union {",
        *arenas,
        "} arenas_t;",
        "",
        "extern const rlx_model_t *const rlx_app_models[];",
        "extern const uint32_t rlx_app_model_count;",
        "extern uint8_t rlx_app_arena[];",
        "extern const uint32_t rlx_app_arena_bytes;",
        "",
        f"const rlx_model_t *const rlx_app_models[] = {{{entries}}};",
        f"const uint32_t rlx_app_model_count = {len(models)}u;",
        '__attribute__((section(".rlx_arena"))) RLX_ALIGNAS(16) uint8_t rlx_app_arena[sizeof(arenas_t)];',
        "const uint32_t rlx_app_arena_bytes = sizeof(arenas_t);",
    ]
    return "\n".join(lines) + "\n"


def bare_main(models: Sequence[str]) -> str:
    """`bare_main.c`: each model run once and nothing else, to measure what a product pays without the link."""
    arenas = [f"    {name}_arena_t {name};" for name in models] or ["    char none;"]
    lines = [
        "/* Written by rlx-edge: the smallest program around the models, linked to measure their size. */",
        '#include "rlx_soc.h"',
        *_includes(models),
        "",
        "int main(void);",
        "",
        '__attribute__((section(".rlx_arena"))) static union {',
        *arenas,
        "} arena;",
        "",
        "void rlx_app_fault(const rlx_fault_t *fault) { (void)fault; }",
        "",
        "int main(void)",
        "{",
        "    (void)arena;",
        *[f"    {name}_run(&arena.{name});" for name in models],
        "    return 0;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _includes(models: Sequence[str]) -> list[str]:
    return [f'#include "{name}/{name}.h"' for name in models]
