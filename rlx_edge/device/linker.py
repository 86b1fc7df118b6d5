"""The linker script of an image, written from the board file."""

from __future__ import annotations

from rlx_edge.device.boards import Board

# {name} fields are filled in below; doubled braces are the script's own.
_SCRIPT = """\
/* Written by rlx-edge from boards/{board}.toml; changes are lost at the next build. */
ENTRY(rlx_reset_handler)

MEMORY
{{
{regions}
}}

PHDRS
{{
  code PT_LOAD FLAGS(5);
  data PT_LOAD FLAGS(6);
}}

SECTIONS
{{
  .text :
  {{
    __rlx_image_start = .;
    KEEP(*(.boot2))
    KEEP(*(.vectors))
    *(.vectors.interrupts)
    KEEP(*(.image_def))
    *(.text .text.*)
    . = ALIGN(16);
  }} > {code} : code

  .rodata :
  {{
    *(.rodata .rodata.*)
    *(.rlx_weights .rlx_weights.*)
    . = ALIGN(16);
  }} > {code} : code

  /* The stack lies lowest, so that one too small faults below the RAM instead of overwriting data. */
  .stack (NOLOAD) :
  {{
    __stack_limit = .;
    . += {stack_bytes};
    __stack_top = .;
  }} > {data} : NONE

  .data : ALIGN(16)
  {{
    __data_start = .;
    *(.data .data.*)
    . = ALIGN(4);
    __data_end = .;
  }} > {data} AT > {code} : data
  __data_load = LOADADDR(.data);
  __rlx_image_end = LOADADDR(.data) + SIZEOF(.data);

  .bss (NOLOAD) : ALIGN(4)
  {{
    __bss_start = .;
    *(.bss .bss.* COMMON)
    . = ALIGN(4);
    __bss_end = .;
  }} > {data} : NONE

  /* Left alone by start-up: survives a reset. */
  .noinit (NOLOAD) : ALIGN(4)
  {{
    *(.noinit .noinit.*)
    . = ALIGN(4);
  }} > {data} : NONE

  .arena (NOLOAD) : ALIGN(16)
  {{
    __arena_start = .;
    *(.rlx_arena .rlx_arena.*)
    . = ALIGN(4);
    __arena_end = .;
  }} > {arena} : NONE

  /DISCARD/ :
  {{
    *(.ARM.exidx .ARM.exidx.* .ARM.extab .ARM.extab.*)
    *(.comment .note .note.*)
  }}
}}
"""


def linker_script(board: Board) -> str:
    """The GNU ld script for images of this board.

    It defines `__rlx_image_start` and `__rlx_image_end` (the image's extent in flash), `__stack_limit` and
    `__stack_top`, and what firmware/soc/startup.c copies and clears.
    """
    regions = "\n".join(
        f"  {region.name} ({'rx' if region.kind == 'flash' else 'rwx'}) : "
        f"ORIGIN = 0x{region.start:08x}, LENGTH = 0x{region.bytes:x}"
        for region in board.chip.regions.values()
    )
    placement = board.placement
    return _SCRIPT.format(
        board=board.name,
        regions=regions,
        code=placement.code.name,
        data=placement.data.name,
        arena=placement.arena.name,
        stack_bytes=board.stack_bytes,
    )
