"""`rlx-edge demo`: the digits example from its float ONNX file to an emulated board, each step with its command."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from rlx_edge import api
from rlx_edge.data import Data
from rlx_edge.device.boards import Board
from rlx_edge.device.build import BUNDLE, Firmware
from rlx_edge.device.parity import ParityResult
from rlx_edge.errors import DeviceError, EdgeError
from rlx_edge.evaluate import Evaluation, evaluate
from rlx_edge.formats.rlx import save_rlx
from rlx_edge.ir import Array, Graph
from rlx_edge.ir.ops import Param
from rlx_edge.quant.quantize import apply_recipe
from rlx_edge.quant.recipe import DEFAULT_EFFORT, effort
from rlx_edge.report import cost_tables, tables
from rlx_edge.report.console import progress, stages
from rlx_edge.report.parity_tables import parity_verdict
from rlx_edge.report.pictures import BLOCKS, PLAIN, side_by_side
from rlx_edge.resources import digits_dir

NAME = "digits"
MODEL, CALIBRATION, HELD_OUT = f"{NAME}.onnx", f"{NAME}_calibration.npz", f"{NAME}_test.npz"
QUANTIZED, BUILD = f"{NAME}.rlx", "firmware"
PARITY_SAMPLES = 16
SHOWN = 4


@dataclass
class Demo:
    """One run: its folder, its board, and where it prints."""

    folder: Path
    board: Board
    out: Console
    started: float = field(default_factory=time.monotonic)
    steps: int = 0

    def run(self) -> ParityResult:
        """All steps. Files of the result lie in the folder. Raises EdgeError kinds."""
        if self.board.emulation is None:
            raise DeviceError(f"{self.board.name}: the demo runs in the emulator, and there is none for this board")
        self._prepare()
        graph, held_out, before = self._float_model()
        int8, given, after = self._quantize(graph, held_out)
        firmware = self._build(int8)
        self._profile()
        result = self._parity(given)
        self._answers(firmware, given, held_out)
        self._verdict(result, firmware, before, after)
        return result

    def _prepare(self) -> None:
        foreign = self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / QUANTIZED).exists()
        if foreign:
            raise EdgeError(f"{self.folder}: holds other files; name another folder for the demo (-o)")
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (MODEL, CALIBRATION, HELD_OUT):
            shutil.copyfile(digits_dir() / name, self.folder / name)
        self._say(
            f"From a trained network to firmware that is proven to compute the same, on {self.board.title}.\n"
            "The network reads handwritten digits, images of 8x8 pixels. After $: the command that does the same."
        )

    def _float_model(self) -> tuple[Graph, Data, Evaluation]:
        self._step("The network as it was trained, in float32", f"rlx-edge inspect {MODEL}")
        graph = api.load(self.folder / MODEL)
        parameters = sum(node.type.elements for node in graph.nodes if isinstance(node.op, Param))
        macs = sum(graph.macs(node) for node in graph.nodes)
        self._say(f"{parameters:,} parameters, {macs:,} multiply-accumulates for one image")
        data = api.load_data(self.folder / HELD_OUT, graph)
        return graph, data, self._evaluate(graph, data, MODEL)

    def _evaluate(self, graph: Graph, data: Data, file: str) -> Evaluation:
        self._command(f"rlx-edge evaluate {file} --data {HELD_OUT}")
        with progress("evaluate") as report:
            result = evaluate(graph, data, progress=report)
        self._say(f"{result.value:.1%} of {result.n} held-out images are read right")
        return result

    def _quantize(self, graph: Graph, held_out: Data) -> tuple[Graph, Data, Evaluation]:
        self._step(
            "Quantized to 8-bit integers; other images show which range each tensor needs",
            f"rlx-edge quantize {MODEL} --data {CALIBRATION} -o {QUANTIZED}",
        )
        data = api.load_data(self.folder / CALIBRATION, graph)
        with stages() as shown:
            made = apply_recipe(graph, data, effort(DEFAULT_EFFORT), progress=shown)
        int8 = made.graph
        save_rlx(int8, self.folder / QUANTIZED)
        self._say(tables.quality_text(api.quality(made.float_graph, int8, data)))
        given = api.load_data(self.folder / HELD_OUT, int8)
        return int8, given, self._evaluate(int8, given, QUANTIZED)

    def _build(self, int8: Graph) -> Firmware:
        self._step(
            f"Written as C, and built into firmware for the board ({self.board.chip.cpu})",
            f"rlx-edge build {QUANTIZED} --board {self.board.name} -o {BUILD}",
        )
        firmware = api.build({NAME: int8}, self.board, self.folder / BUILD)
        self._say(tables.sizes_text(firmware.sizes))
        self._say(f"the C of the network is in {BUILD}/{BUNDLE}/{NAME}/, the kernels it calls in rlx/ beside it")
        return firmware

    def _profile(self) -> None:
        self._step("Started in the emulator, which counts what each layer takes", f"rlx-edge profile {BUILD}")
        self.out.print(cost_tables.profile_table(api.profile(self.folder / BUILD)))

    def _parity(self, given: Data) -> ParityResult:
        emulate = "" if self.board.purely_emulated else " --emulate"
        self._step(
            f"{PARITY_SAMPLES} images sent over the serial line; every tensor read back, and compared byte by byte",
            f"rlx-edge parity {BUILD} --data {HELD_OUT} --samples 0:{PARITY_SAMPLES} --layers{emulate}",
        )
        samples = Data(given.batch(0, PARITY_SAMPLES))
        with progress("parity") as report:
            result = api.parity(self.folder / BUILD, samples, layers=True, emulate=True, progress=report)
        for engine in dict.fromkeys(row.engine for row in result.rows):
            rows = [row for row in result.rows if row.engine == engine]
            compared, differing = sum(r.compared_bytes for r in rows), sum(r.differing_bytes for r in rows)
            self._say(f"{len(rows)} tensors, {compared:,} bytes compared with {engine}: {differing:,} differ")
        return result

    def _answers(self, firmware: Firmware, given: Data, held_out: Data) -> None:
        """Pictures of some images, with what the board says to them."""
        self._step(f"What the board answers to the first {SHOWN}", "")
        assert held_out.labels is not None
        images = next(iter(held_out.inputs.values()))[:SHOWN, 0]
        labels = held_out.labels[:SHOWN]
        said = self._ask(firmware, given)
        captions = [f"board: {a}, label: {b}" for a, b in zip(said, labels, strict=True)]
        shades = BLOCKS if "utf" in self.out.encoding.lower() else PLAIN
        self.out.print(side_by_side(list(images), captions, shades), markup=False)

    def _ask(self, firmware: Firmware, given: Data) -> list[int]:
        """The class that the device gives to each image."""
        (samples,) = given.inputs.values()
        answers: list[Array] = []
        with api.connect(firmware, self.board, emulate=True) as link:
            link.hello()
            model = link.model(NAME)
            for sample in samples[:SHOWN]:
                link.write_inputs(model, {model.inputs[0].name: sample})
                link.run(model)
                answers.append(link.read_outputs(model)[model.outputs[0].name])
        return [int(np.argmax(scores)) for scores in answers]

    def _verdict(self, result: ParityResult, firmware: Firmware, before: Evaluation, after: Evaluation) -> None:
        self.out.print()
        self._say(
            f"{parity_verdict(result)}; {after.value:.1%} right in int8, {before.value:.1%} in float; "
            f"{firmware.sizes.flash_bytes:,} bytes of flash; {time.monotonic() - self.started:.0f} s"
        )

    def _step(self, title: str, command: str) -> None:
        self.steps += 1
        self.out.print(f"\n{self.steps}. {title}", style="bold", markup=False)
        if command:
            self._command(command)

    def _command(self, command: str) -> None:
        self.out.print(f"   $ {command}", style="cyan", markup=False, soft_wrap=True)

    def _say(self, text: str) -> None:
        self.out.print(text, markup=False, soft_wrap=True)
