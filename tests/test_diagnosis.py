"""Faults that are planted in firmware, and the reason that parity gives for each."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import rlx_edge
from elftools.elf.elffile import ELFFile
from models import ModelMaker, samples, tiny_model
from planted import BOARD, Edits, arena_below_stack, device_with, make_bundle, parity_with, skip_model, stage_model

from rlx_edge import api
from rlx_edge.cgen.options import Optimize, Options
from rlx_edge.data import Data
from rlx_edge.device.boards import load_board
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import FaultError
from rlx_edge.diagnosis.diagnose import diagnose
from rlx_edge.diagnosis.divergence import Divergence
from rlx_edge.diagnosis.guesses import guess
from rlx_edge.errors import DeviceError
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import QConv2d, QMatMul
from rlx_edge.reference import run_all
from rlx_edge.reference.run import evaluate

MODEL, WEIGHTS, REQUANT = "skip/skip.c", "skip/skip_weights.c", "rlx/rlx_requant.h"
ONE_WEIGHT = (r"(s01_weights[^{]*\{\s*)(-?\d+)", r"\g<1>3")
UNCHECKED = (r"return rlx_crc32\(.*;", "return 1;")

FAULTS: dict[str, tuple[Edits, str, str, str]] = {
    "shift without rounding": (
        {REQUANT: [(r" \+ \(\(x & mask\) > threshold \? 1 : 0\)", " + 0 * threshold")]},
        "different rounding",
        "a",
        "products drop the bits of the last shift",
    ),
    "rule single": (
        {
            REQUANT: [
                (
                    r"return rlx_shift_right\(rlx_high_mul.*;",
                    "const int64_t half = INT64_C(1) << (30 - shift + 0 * left);\n"
                    "    return (int32_t)(((int64_t)x * multiplier + half) >> (31 - shift));",
                )
            ]
        },
        "different rounding",
        "a",
        "products round once, as rule single has it",
    ),
    "another pad value": ({MODEL: [(r"\.x_zp = -75", ".x_zp = 0")]}, "padding", "b", "padding holds 0 instead of -75"),
    "no clamp": (
        {MODEL: [(r"\.low = -45", ".low = -128")]},
        "saturation",
        "b",
        "bounded to -128 to 127, not -45 to 127",
    ),
    "another zero point": (
        {MODEL: [(r"\.out_zp = -75", ".out_zp = -70")]},
        "zero point",
        "a",
        "the zero point of the output is -70 instead of -75",
    ),
    "narrow sums": (
        {
            REQUANT: [
                (r"return rlx_shift_right\(rlx_high_mul", "x = (int16_t)x;\n    return rlx_shift_right(rlx_high_mul")
            ]
        },
        "overflow",
        "a",
        "accumulators wrap around in 16 bits",
    ),
    "another weight": (
        {WEIGHTS: [ONE_WEIGHT], MODEL: [UNCHECKED]},
        "different weights",
        "b",
        "weight 0 of output channel 0 is 3, not ",
    ),
    "one tensor over another": (
        {
            MODEL: [
                (r"at\(arena, 40, 30\), at\(arena, 0, 30\)", "at(arena, 40, 30), at(arena, 252, 30)"),
                (r"at\(arena, 0, 30\), at\(arena, 252, 30\), at", "at(arena, 252, 30), at(arena, 252, 30), at"),
                (r'\{"c", 0u', '{"c", 252u'),
            ]
        },
        "overlapping memory",
        "sum",
        "of 'a', which step 3 reads, are overwritten in step 2 (c), with its output",
    ),
    "a stray write": (
        {MODEL: [(r"(rlx_conv_s8\(&p02.*\n)", r"\1    arena[262] ^= 0x80;\n")]},
        "memory corruption",
        "sum",
        "bytes 10 to 10 of 'a', which step 3 reads, are overwritten in step 2 (c), with bytes that are not its output",
    ),
    "a result that depends on time": (
        {MODEL: [(r"(rlx_conv_s8\(&p00.*\n)", r"\1    static uint8_t runs;\n    arena[252] ^= ++runs;\n")]},
        "not repeatable",
        "a",
        "a second run on the same input gives 1 other bytes",
    ),
    "a kernel that is wrong in its own way": (
        {MODEL: [(r"(rlx_conv_s8\(&p00.*\n)", r"\1    arena[252] ^= 64;\n    arena[253] ^= 64;\n")]},
        "another kernel",
        "a",
        "no mistake that is known here gives these values",
    ),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("planted") / "bundle")


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_told_apart(fault: str, bundle: Path) -> None:
    edits, cause, tensor, why = FAULTS[fault]
    result = parity_with(bundle, edits)
    assert not result.exact
    assert result.diagnosis is not None
    assert (result.diagnosis.cause, result.diagnosis.tensor) == (cause, tensor)
    assert why in result.diagnosis.why


def test_numbers_behind_the_element_are_shown(bundle: Path) -> None:
    """Of an accumulator, by hand: the products of one window, from the model's own arrays."""
    result = parity_with(bundle, FAULTS["another pad value"][0])
    assert result.diagnosis is not None
    facts, (_, row, column, channel) = dict(result.diagnosis.account), result.diagnosis.element
    (model,) = api.open_models(bundle)
    graph = model.plan.graph
    node = next(node for node in graph.nodes if node.name == "b")
    weights, bias = (graph.constant(operand) for operand in graph.operands(node)[1:])
    assert weights is not None and bias is not None
    assert result.first_difference is not None
    sample = {"x": samples(skip_model(), 2, seed=3)["x"][result.first_difference.sample]}
    x = np.pad(api.engines(model)["reference"](sample)["a"].astype(int) + 75, ((0, 0), (1, 1), (1, 1), (0, 0)))
    total = int((x[0, row : row + 3, column : column + 3] * weights[channel].astype(int)).sum())
    assert facts["rule"] == "tflm"
    assert facts["sum of products"] == f"{total:,}"
    assert facts["bias"] == f"{int(bias[channel]):,}"
    assert facts["accumulator"] == f"{total + int(bias[channel]):,}"
    assert facts["zero points"] == "x -75, w 0, y -45"
    assert facts["reference"] == facts["host C"] != facts["device"]
    assert int(facts["taps in padding"]) > 0


@pytest.mark.parametrize("wrong", ["host C", "reference"])
def test_an_engine_that_is_wrong_is_told_from_the_device(wrong: str, bundle: Path) -> None:
    (model,) = api.open_models(bundle)
    engines = api.engines(model)

    def broken(sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = dict(engines[wrong](sample))
        tensors["b"] = tensors["b"].copy()
        tensors["b"][0, 2, 3, 1] ^= 1
        return tensors

    sample = {"x": samples(skip_model(), 1)["x"][0]}
    with device_with(bundle, {}) as port, Link.open(port) as link:
        found = diagnose(link, model, sample, {**engines, wrong: broken})
    assert (found.cause, found.tensor, found.element) == (f"{wrong} differs", "b", (0, 2, 3, 1))


def test_memory_that_a_stage_reads_is_looked_at(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", stage_model(), Options(ram_budget=0))
    (model,) = api.open_models(bundle)
    pre = next(tensor for tensor in model.plan.tensors if tensor.name == "pre")
    stray = {MODEL: [(r"(rlx_mean_s8\(.*\n)", rf"\1    arena[{pre.offset + 5}] ^= 0x80;\n")]}
    with device_with(bundle, stray) as port:
        found = api.parity(bundle, Data(samples(stage_model(), 1)), port=port).diagnosis
    assert found is not None
    assert (found.cause, found.tensor, found.step) == ("memory corruption", "a", 2)
    assert "bytes 5 to 5 of 'pre', which step 2 reads, are overwritten in step 1 (mean)" in found.why


def test_a_device_that_fails_while_the_reason_is_sought_gives_none(bundle: Path) -> None:
    dies = r"\1    static int runs;\n    arena[252] ^= 64;\n    if (++runs > 4) __builtin_trap();\n"
    result = parity_with(bundle, {MODEL: [(r"(rlx_conv_s8\(&p00.*\n)", dies)]})
    assert result.diagnosis is not None
    assert result.diagnosis.cause == "undecided"
    assert "looking for the reason ended: " in result.diagnosis.why


def test_stack_that_runs_into_the_arena_is_recognized(bundle: Path) -> None:
    """The arena ends where the stack does, which is as large as single steps need; RUN calls deeper than STEP does."""
    (model,) = api.open_models(bundle)
    arena, enough = model.plan.arena_bytes, 1024
    with device_with(bundle, {}, arena_below_stack(arena, enough)) as port, Link.open(port) as link:
        skip = link.model("skip")
        link.write_inputs(skip, {"x": np.zeros((1, 7, 6, 3), np.int8)})
        left = min(link.step(skip, step, measure_stack=True).stack_left for step in range(skip.steps))
    result = parity_with(bundle, {}, arena_below_stack(arena, enough - left))
    assert not result.exact
    assert result.diagnosis is not None
    assert result.diagnosis.cause == "stack overrun"
    assert "wrote to the last word of the stack" in result.diagnosis.why


def test_stack_far_too_small_faults_with_that_reason(bundle: Path) -> None:
    """Whether memory lies below the stack, so that it is overwritten, or none."""
    (model,) = api.open_models(bundle)
    elf = bundle.parent / "build" / "firmware.elf"
    for board in (arena_below_stack(model.plan.arena_bytes, 464), replace(load_board(BOARD), stack_bytes=464)):
        with device_with(bundle, {}, board) as port, Link.open(port, elf=elf) as link:
            skip = link.model("skip")
            link.write_inputs(skip, {"x": np.zeros((1, 7, 6, 3), np.int8)})
            with pytest.raises(FaultError, match=r"fault while running skip, in step 0: stack overflow"):
                link.run(skip)


def test_changed_weights_in_flash_are_named(bundle: Path) -> None:
    """Their checksum tells, and then the flash is read and compared."""
    with device_with(bundle, {WEIGHTS: [ONE_WEIGHT]}) as port, pytest.raises(DeviceError) as caught:
        api.parity(bundle, Data(samples(skip_model(), 1)), port=port)
    told = str(caught.value)
    assert "are not those that it was generated with: compile the bundle unchanged, and flash it; " in told
    assert "; different weights: byte 0 of s01_weights of b is 0x03" in told


def flipped(elf: Path, symbol: str, offset: int, out: Path) -> Path:
    """A copy of an ELF file with the lowest bit of one byte of a symbol flipped."""
    with elf.open("rb") as stream:
        image = ELFFile(stream)
        (found,) = image.get_section_by_name(".symtab").get_symbol_by_name(symbol)
        section = image.get_section(found["st_shndx"])
        at = section["sh_offset"] + (found["st_value"] & ~1) - section["sh_addr"] + offset
    content = bytearray(elf.read_bytes())
    content[at] ^= 1
    out.write_bytes(content)
    return out


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flipped") / "build"
    api.build({"skip": skip_model()}, BOARD, folder)
    return folder


@pytest.mark.parametrize(
    ("symbol", "why"),
    [
        ("skip_weights", "; different weights: byte 40 of s00_"),
        ("rlx_link_poll", "; damaged flash: byte 40 of rlx_link_poll is 0x"),
    ],
)
def test_a_flipped_bit_in_flash_is_found(symbol: str, why: str, build: Path, tmp_path: Path) -> None:
    elf = flipped(build / "firmware.elf", symbol, 40, tmp_path / "flipped.elf")
    with Emulator(load_board(BOARD), elf) as emulator, pytest.raises(DeviceError) as caught:
        api.parity(build, Data(samples(skip_model(), 1)), port=emulator.port)
    assert "firmware is not the build's" in str(caught.value)
    assert why in str(caught.value)


def test_firmware_of_another_build_is_stale(build: Path, tmp_path: Path) -> None:
    api.build({"skip": skip_model()}, BOARD, tmp_path / "newer", options=Options(Optimize.SIZE))
    with Emulator(load_board(BOARD), build / "firmware.elf") as emulator, pytest.raises(DeviceError) as caught:
        api.parity(tmp_path / "newer", Data(samples(skip_model(), 1)), port=emulator.port)
    assert "stale firmware: the device runs another version of 'skip'" in str(caught.value)
    shutil.rmtree(tmp_path / "newer")


def divergences(graph: Graph) -> list[Divergence]:
    """Every node of a model, on a sample, with nothing wrong as yet."""
    sample = {name: values[0] for name, values in samples(graph, 1, seed=5).items()}
    values = sample | run_all(graph, sample)

    def value(node: Node) -> Array:
        constant = graph.constant(node)
        return values[node.name] if constant is None else constant

    nodes = [node for node in graph.nodes if node.type.dtype is DType.I8 and graph.constant(node) is None]
    return [
        Divergence(graph, node, tuple(map(value, operands)), value(node), None, value(node))
        for node in nodes
        if (operands := graph.operands(node))
    ]


def damaged(at: Divergence) -> Iterator[tuple[str, Array]]:
    """What memory that fails, or a kernel that is wrong in its own way, makes of a tensor."""
    flat, size = at.want.reshape(-1), at.want.size
    for place in {0, size // 2, size - 1, int(flat.argmax()), int(flat.argmin())}:
        for bit in (0, 5, 7):
            got = flat.copy()
            got.view(np.uint8)[place] ^= 1 << bit
            yield f"bit {bit} of byte {place}", got.reshape(at.want.shape)
    yield "stride", np.roll(at.want, 1, axis=1)
    yield "channel", np.concatenate([at.want[..., :1], at.want[..., :-1]], axis=-1)
    x = at.operands[0].copy()
    x.reshape(-1)[: x.size // 7 + 1] = 0
    yield "zeros", np.zeros_like(at.want)
    yield "constant channel", np.concatenate([np.full_like(at.want[..., :1], -128), at.want[..., 1:]], axis=-1)
    yield "input", evaluate(at.graph, at.node, (x, *at.operands[1:]))


def one_channel_model() -> Graph:
    maker = ModelMaker("one", 6)
    return maker.builder.build([maker.conv(maker.conv(maker.input((1, 7, 6, 3)), 1, name="a"), 1, name="b")])


@pytest.mark.parametrize("make", [skip_model, tiny_model, one_channel_model])
def test_damage_is_not_taken_for_a_mistake(make: Callable[[], Graph]) -> None:
    """With enough numbers to choose, some weight or bound gives any single value."""
    told = 0
    for at in divergences(make()):
        for damage, got in damaged(at):
            if not np.array_equal(got, at.want):
                assert guess(replace(at, got=got)).kind in ("another kernel", "undecided"), (at.node.name, damage)
                told += 1
    assert told > 20


def test_a_bias_that_is_another_is_found() -> None:
    """Whatever it is; in a layer of few values there is no telling."""
    kinds = {}
    for at in divergences(tiny_model()):
        if isinstance(at.node.op, QConv2d | QMatMul):
            x, w, bias = at.operands
            other = bias.copy()
            other[1] = bias[0]
            found = guess(replace(at, got=evaluate(at.graph, at.node, (x, w, other))))
            kinds[at.node.name] = found.kind
            if found.kind != "undecided":
                low, high = (int(part.replace(",", "")) for part in re.findall(r"[-+][\d,]+", found.why)[-2:])
                assert low <= int(bias[0]) - int(bias[1]) <= high
    assert kinds == {"conv": "different weights", "depthwise": "different weights", "dense": "undecided"}


PAGE = Path(__file__).resolve().parents[1] / "docs" / "parity.md"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_page_has_every_fault(fault: str) -> None:
    _, cause, _, why = FAULTS[fault]
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {fault} |")]
    assert row.split(" | ")[1] == cause
    assert why.strip().rstrip(",") in row


def test_the_command_says_why(bundle: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=samples(skip_model(), 2, seed=3)["x"][:, 0])
    with device_with(bundle, FAULTS["another pad value"][0]) as port:
        done = rlx_edge("parity", bundle, "--port", port, "--data", tmp_path / "data.npz")
        told = rlx_edge("parity", bundle, "--port", port, "--data", tmp_path / "data.npz", "--json")
    assert (done.returncode, told.returncode) == (1, 1)
    shown = PAGE.read_text().split("```")[1].strip()
    assert shown in done.stdout
    facts = json.loads(told.stdout)
    assert (facts["exact"], facts["diagnosis"]["cause"], facts["diagnosis"]["step"]) == (False, "padding", 1)
