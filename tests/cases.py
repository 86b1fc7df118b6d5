"""Kernel calls as bytes for the resident test firmware (tests/firmware/cases), and the same code on the host."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlx_edge.cgen.plan import Call, Constant, View
from rlx_edge.cgen.rows import rows_of
from rlx_edge.cgen.variants.table import ALL_KERNELS
from rlx_edge.ir import Array, Graph
from rlx_edge.resources import firmware_dir

HERE = Path(__file__).resolve().parent
MAGIC, OUTPUT, NONE = 0x434C5852, 0xFFFFFFFF, 0xFFFFFFFF
FILL = 0x55
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


@dataclass(frozen=True)
class Case:
    """A call on rows [y0, y1): its bytes, and what the output must be (rows outside keep the fill)."""

    data: bytes
    expected: bytes


def write_bundle(folder: Path) -> Path:
    """A bundle whose only model is the hand-written `cases`."""
    shutil.copytree(firmware_dir() / "kernels", folder / "rlx")
    (folder / "rlx" / "rlx_bundle.h").write_text("#define RLX_BUNDLE_KERNELS 0u\n")
    shutil.copytree(HERE / "firmware" / "cases", folder / "cases", ignore=shutil.ignore_patterns("main.c"))
    (folder / "cases" / "cases_kernels.h").write_text(kernel_switch())
    return folder


def kernel_switch() -> str:
    """The C function that calls a kernel by its number in ALL_KERNELS."""
    lines = [
        "static void call(uint32_t kernel, const void *p, const rlx_view_t *v, void *scratch, int32_t y0, int32_t y1)"
    ]
    lines += ["{", "    switch (kernel) {"]
    for number, kernel in enumerate(ALL_KERNELS):
        views = ", ".join(f"v[{i}]" for i in range(kernel.inputs + 1))
        scratch = ", scratch" if kernel.scratch else ""
        lines.append(f"    case {number}: {kernel.name}((const {kernel.struct} *)p, {views}{scratch}, y0, y1); break;")
    return "\n".join([*lines, "    default: (void)scratch; break;", "    }", "}", ""])


def build_host_cases(folder: Path) -> None:
    """Compiles the case runner `folder / "cases"` with the address and undefined-behavior sanitizers."""
    bundle = write_bundle(folder / "bundle")
    sources = [*sorted(bundle.glob("*/*.c")), HERE / "firmware" / "cases" / "main.c"]
    command = ["gcc", "-std=c11", "-O1", "-g", *SANITIZE, f"-I{bundle / 'rlx'}", f"-I{bundle / 'cases'}"]

    def compiled(source: Path) -> Path:
        target = folder / f"{source.parent.name}_{source.stem}.o"
        subprocess.run([*command, "-c", str(source), "-o", str(target)], check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    subprocess.run(["gcc", *SANITIZE, *map(str, objects), "-o", str(folder / "cases")], check=True)


class HostCases:
    """The case runner as a host process."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, data: bytes) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(struct.pack("<I", len(data)) + data)
        stdin.flush()
        header = stdout.read(4)
        assert len(header) == 4, "the case runner stopped: see the sanitizer's report on stderr"
        return stdout.read(struct.unpack("<I", header)[0])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=10) == 0


def encode(
    graph: Graph, call: Call, values: Mapping[str, Array], y0: int, y1: int, *, in_place: bool = False, ring: int = 0
) -> Case:
    """A case for rows [y0, y1) of a call, given every tensor's value by node name.

    `in_place` gives the first input and the output the same memory; `ring` keeps only that many rows of the first
    input, those that the rows need being the caller's care.
    """
    if y1 - y0 == 1 < call.rows and call.by_rows is not None:
        call = call.by_rows
    regions: list[bytes] = []

    def add(data: bytes) -> int:
        regions.append(data)
        return len(regions) - 1

    pointers = [add(_bytes(call.constants[name].values)) for name in call.kernel.pointers]
    views: list[tuple[int, int, int, int]] = []
    initial = NONE
    scratch = add(bytes(call.scratch)) if call.kernel.scratch else NONE
    for index, view in enumerate(call.inputs):
        data = _base_bytes(graph, view, values)
        if index == 0 and in_place:
            initial = add(data)
            views.append((OUTPUT, view.offset, view.pitch, 0))
        elif index == 0 and ring:
            views.append((add(_ring(data, view, ring)), 0, view.pitch, ring))
        else:
            views.append((add(data), view.offset, view.pitch, view.ring))
    views.append((OUTPUT, call.output.offset, call.output.pitch, 0))
    result = _base_bytes(graph, call.output, values)
    before = regions[initial] if in_place else bytes([FILL]) * len(result)
    expected = _expected(call, result, before, y0, y1)
    fields = [call.params[name] for name in call.kernel.fields]
    head = [MAGIC, ALL_KERNELS.index(call.kernel), len(pointers), len(fields), len(views), len(regions)]
    head += [y0, y1, len(result), FILL, initial, scratch]
    return Case(_pack(head, regions, pointers, fields, views), expected)


def encode_in_arena(call: Call, arena: bytes, offsets: Mapping[int, int], first_row: int, rows: int) -> bytes:
    """A case whose tensors lie at `offsets` (by node id) of one memory, as in a plan; the result is all of it."""
    regions = [arena]
    pointers = []
    for name in call.kernel.pointers:
        regions.append(_bytes(call.constants[name].values))
        pointers.append(len(regions) - 1)
    views = []
    for view in (*call.inputs, call.output):
        if isinstance(view.base, Constant):
            regions.append(_bytes(view.base.values))
            views.append((len(regions) - 1, view.offset, view.pitch, view.ring))
        else:
            views.append((OUTPUT, offsets[view.base] + view.offset, view.pitch, view.ring))
    scratch = NONE
    if call.kernel.scratch:
        regions.append(bytes(call.scratch))
        scratch = len(regions) - 1
    fields = [call.params[name] for name in call.kernel.fields]
    head = [MAGIC, ALL_KERNELS.index(call.kernel), len(pointers), len(fields), len(views), len(regions)]
    head += [first_row, rows, len(arena), FILL, 0, scratch]
    return _pack(head, regions, pointers, fields, views)


def _pack(
    head: list[int],
    regions: list[bytes],
    pointers: list[int],
    fields: list[int],
    views: list[tuple[int, int, int, int]],
) -> bytes:
    words = len(head) + 2 * len(regions) + len(pointers) + len(fields) + 4 * len(views)
    offset, table, data = _align(4 * words), [], b""
    for region in regions:
        table += [offset + len(data), len(region)]
        data += region.ljust(_align(len(region)), b"\0")
    flat = [*head, *table, *pointers, *fields, *(word for view in views for word in view)]
    return struct.pack(f"<{words}I", *(word & 0xFFFFFFFF for word in flat)).ljust(offset, b"\0") + data


def _align(size: int) -> int:
    return -(-size // 16) * 16


def _bytes(values: Array) -> bytes:
    return np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()


def _base_bytes(graph: Graph, view: View, values: Mapping[str, Array]) -> bytes:
    if isinstance(view.base, Constant):
        return _bytes(view.base.values)
    return _bytes(values[graph.nodes[view.base].name])


def _ring(data: bytes, view: View, ring: int) -> bytes:
    """The last rows that each place of a ring held, from the view's first row on."""
    rows = [data[view.offset + i : view.offset + i + view.pitch] for i in range(0, len(data) - view.offset, view.pitch)]
    held = [bytes(view.pitch)] * ring
    for index, row in enumerate(rows):
        held[index % ring] = row
    return b"".join(held)


def _expected(call: Call, result: bytes, before: bytes, y0: int, y1: int) -> bytes:
    width = call.params["bytes"] if call.kernel.name == "rlx_copy_s8" else call.output.pitch
    made = bytearray(before)
    for row in range(y0, y1):
        start = call.output.offset + row * call.output.pitch
        made[start : start + width] = result[start : start + width]
    return bytes(made)


__all__ = ["FILL", "Case", "HostCases", "encode", "encode_in_arena", "rows_of", "write_bundle"]
