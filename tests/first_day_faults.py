"""What goes wrong on the first day, each done for real, and what is said. test_first_day.py checks it, and the page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from flash_bench import Builds, Desk
from flash_faults import TWO_BOARDS, Fault, deploy, forbidden_port, held_port
from models import ModelMaker, samples, tiny_model

from rlx_edge import api
from rlx_edge.demo import digits_dir
from rlx_edge.device.boards import load_board
from rlx_edge.device.emulator import QEMU, Emulator
from rlx_edge.ir import Graph


def model_file(desk: Desk, graph: Graph, name: str = "model.rlx") -> Path:
    api.save(graph, desk.folder / name)
    return desk.folder / name


def data_file(desk: Desk, values: np.ndarray, name: str = "data.npz") -> Path:
    np.savez(desk.folder / name, x=values)
    return desk.folder / name


def without_figures(message: str) -> str:
    return re.sub(r"\d[\d,]{2,}", "N", message)


def no_compiler(desk: Desk, build: Builds) -> str:
    return desk.refused("build", model_file(desk, tiny_model()), "-o", desk.folder / "build")


def float_model(desk: Desk, build: Builds) -> str:
    model = desk.folder / "model.onnx"
    model.write_bytes((digits_dir() / "digits.onnx").read_bytes())
    return desk.refused("build", model, "-o", desk.folder / "build")


def raw_pixels(desk: Desk, build: Builds) -> str:
    values = np.random.default_rng(1).integers(0, 256, (8, 1, 8, 8), np.uint8)
    words = ("--data", data_file(desk, values), "-o", desk.folder / "int8.rlx")
    return desk.refused("quantize", digits_dir() / "digits.onnx", *words)


def channels_first(desk: Desk, build: Builds) -> str:
    values = np.zeros((8, 2, 6, 6), np.float32)
    words = ("--data", data_file(desk, values), "-o", desk.folder / "outputs.npz")
    return desk.refused("run", model_file(desk, tiny_model()), *words)


def too_much_ram(desk: Desk, build: Builds) -> str:
    maker = ModelMaker("wide", 1)
    x = maker.conv(maker.input((1, 56, 56, 3)), 8, name="stem")
    model = model_file(desk, maker.builder.build([maker.pool(maker.conv(x, 8, name="body"), 4)]))
    desk.all_tools()
    return without_figures(desk.refused("build", model, "--board", "microbit", "-o", desk.folder / "build"))


def too_much_flash(desk: Desk, build: Builds) -> str:
    maker = ModelMaker("deep", 1)
    model = model_file(desk, maker.builder.build([maker.dense(maker.input((1, 700)), 700, name="head")]))
    desk.all_tools()
    return without_figures(desk.refused("build", model, "--board", "microbit", "-o", desk.folder / "build"))


def another_build(desk: Desk, build: Builds) -> str:
    desk.all_tools()
    for seed, name in ((1, "old"), (2, "new")):
        api.build({"model": tiny_model(seed)}, "mps2-an386", desk.folder / name)
    desk.real_tools(QEMU)
    data = data_file(desk, samples(tiny_model(), 1)["x"][:, 0])
    with Emulator(load_board("mps2-an386"), desk.folder / "old" / "firmware.elf") as emulator:
        said = desk.refused("parity", desk.folder / "new", "--data", data, "--port", emulator.port)
    return re.sub(r"\b[0-9a-f]{12}\b", "HASH", said.replace(emulator.port, "/dev/ttyACM0"))


FIRST_DAY = (
    Fault("no permission on the port", "a port of root's", forbidden_port, "sudo usermod -aG"),
    Fault("another program holds the port", "a terminal program is open", held_port, ": kill "),
    Fault("board not found", "nothing plugged in, no `--port`", deploy("nucleo-f446re"), "plug it in"),
    Fault("two boards match", "two of the same kind", deploy("nucleo-f446re", *TWO_BOARDS), "(--port)"),
    Fault("no Arm compiler", "a computer without it", no_compiler, "apt-get install"),
    Fault("a float model is to be built", "`build model.onnx`", float_model, "rlx-edge quantize"),
    Fault("uint8 data for a 0..1 input", "raw pixels", raw_pixels, "--preprocess scale=1/255"),
    Fault("NCHW data for an NHWC model", "[8, 2, 6, 6] for [6, 6, 2]", channels_first, "numpy.moveaxis(x, 1, -1)"),
    Fault("more RAM than the board has", "56 x 56 x 8 on a micro:bit", too_much_ram, "--ram-budget"),
    Fault("more flash than the board has", "490,000 weights on a micro:bit", too_much_flash, "a larger board"),
    Fault("the board runs another build", "`parity` after a new build", another_build, "rlx-edge flash BUILD"),
)
