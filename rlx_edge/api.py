"""The whole path as functions: load, calibrate, quantize, generate, build, run, connect, parity, profile.

`import rlx_edge` offers these names. Each raises EdgeError kinds with one clear line.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlx_edge.cgen.bundle import BundledModel, generate, is_bundle, open_bundle
from rlx_edge.cgen.custom_check import check_custom
from rlx_edge.cgen.emit import short_names
from rlx_edge.cgen.host import HostModel
from rlx_edge.cgen.options import DEFAULT, Optimize, Options
from rlx_edge.cgen.predict import predict as predict_costs
from rlx_edge.cgen.target import get_target
from rlx_edge.check import check_model
from rlx_edge.data import Data, load_data
from rlx_edge.device.board_profile import BoardProfile, profile_board
from rlx_edge.device.boards import Board, load_board
from rlx_edge.device.build import BUNDLE, Firmware, build_firmware, claim_build_folder, load_firmware
from rlx_edge.device.causes import ADVICE, Diagnosis
from rlx_edge.device.compare import Engine, Sample
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.firmware import ExpectedFirmware, WrongFirmwareError
from rlx_edge.device.fitting import core_of
from rlx_edge.device.flash import Flashed, Wishes
from rlx_edge.device.flash import flash as flash_build
from rlx_edge.device.flash_job import Report
from rlx_edge.device.link import Link
from rlx_edge.device.memory import check_memory
from rlx_edge.device.parity import Observe, ParityResult, run_parity
from rlx_edge.device.profile import Profile, profile_emulated
from rlx_edge.device.scope import Scope, find_layer
from rlx_edge.device.toolchain import find_compiler
from rlx_edge.device.usb import find_port
from rlx_edge.diagnosis.diagnose import diagnose
from rlx_edge.diagnosis.flash import flash_difference, places_of, weights_difference
from rlx_edge.engines import Progress, is_float, predict
from rlx_edge.errors import DeviceError, EdgeError
from rlx_edge.evaluate import evaluate
from rlx_edge.formats import save as formats_save
from rlx_edge.formats.load import load
from rlx_edge.ir import Array, Graph
from rlx_edge.ir.custom import CustomKernel, CustomOp, register_custom
from rlx_edge.passes.change_rule import change_rule as with_rule
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.to_nhwc import to_nhwc
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.explain import explain
from rlx_edge.quant.explain_json import read_explanation, with_explanation
from rlx_edge.quant.quality import quality
from rlx_edge.quant.quantize import apply_recipe, quantize
from rlx_edge.quant.recipe import Recipe, effort
from rlx_edge.reference import run_all


def run(graph: Graph, data: Data, engine: str | None = None) -> dict[str, Array]:
    """The outputs for all samples by name: host C for int8 models, the reference for float ones, or as named."""
    return predict(graph, data, engine)


def save(graph: Graph, path: Path | str) -> tuple[str, ...]:
    """Write a graph as .rlx, .tflite or .onnx, as the file's ending says; notes on what the file says in another way.

    For .tflite the graph is moved to NHWC first, as the format has it. Raises what `formats.save.save` raises.
    """
    tflite = Path(path).suffix == ".tflite"
    return formats_save.save(freeze(to_nhwc(graph)) if tflite and not is_float(graph) else graph, path)


def build(
    models: Mapping[str, Graph],
    board: Board | str,
    out: Path | str,
    target: str | None = None,
    options: Options = DEFAULT,
) -> Firmware:
    """Generate a bundle for the board's core and build its firmware, all within the folder `out`.

    Raises ToolError for a missing compiler, and for a folder that holds other files, before anything is written; and
    EdgeError when a budget cannot be met or the board's memory would not hold the models, before anything is compiled.
    """
    board, out = load_board(board) if isinstance(board, str) else board, Path(out)
    chosen = get_target(target or target_of(board))
    find_compiler()
    new = not out.exists()
    claim_build_folder(out)
    try:
        generate(models, out / BUNDLE, chosen, options=options, check=lambda plans: check_memory(board, plans))
    except EdgeError:
        if new:
            shutil.rmtree(out, ignore_errors=True)
        raise
    return build_firmware(out / BUNDLE, list(models), board, out)


def target_of(board: Board) -> str:
    """The name of the target that a board's core is."""
    return core_of(board)


def open_build(out: Path | str) -> tuple[Firmware, Board, tuple[BundledModel, ...]]:
    """A folder that `build` made. Raises ToolError or EdgeError when it is none, or incomplete."""
    out = Path(out)
    firmware = load_firmware(out)
    return firmware, load_board(firmware.board), open_bundle(out / BUNDLE)


def open_models(folder: Path | str) -> tuple[BundledModel, ...]:
    """The models of a build, or of a bundle. Raises EdgeError or ToolError when the folder is neither."""
    folder = Path(folder)
    return open_bundle(folder) if is_bundle(folder) else open_build(folder)[2]


def pick(models: tuple[BundledModel, ...], name: str | None) -> BundledModel:
    """The model of that name, or the only one. Raises EdgeError listing the names."""
    names = [model.name for model in models]
    if name is None and len(models) == 1:
        return models[0]
    if name not in names:
        raise EdgeError(f"the build holds the models {', '.join(names)}: pick one with --model")
    return models[names.index(name)]


def port_or_emulator(board: Board, port: str | None, emulate: bool) -> str | None:
    """The serial port that `connect` takes, None for the emulator. Raises DeviceError as that does."""
    if port is not None or board.purely_emulated:
        return port
    if emulate:
        if board.emulation is None:
            raise DeviceError(f"{board.name}: no emulator runs this board; name its serial port (--port)")
        return None
    otherwise = ", or run it in the emulator (--emulate)" if board.emulation is not None else ""
    return find_port(board, otherwise=otherwise)


@contextmanager
def connect(firmware: Firmware, board: Board, port: str | None = None, *, emulate: bool = False) -> Iterator[Link]:
    """A link to the device: on `port`, or on the port that has the board's USB id, or with the firmware started in the
    emulator.

    Purely emulated boards need no port; a board that one can buy runs in the emulator only with `emulate`.
    Raises DeviceError when there is neither a port nor an emulator, and when two connected boards match.
    """
    port = port_or_emulator(board, port, emulate)
    if port is not None:
        with Link.open(port, board.baud, elf=firmware.elf, board=board) as link:
            yield link
        return
    with Emulator(board, firmware.elf) as emulator, Link.open(emulator.port, board.baud, elf=firmware.elf) as link:
        yield link


def parity(
    folder: Path | str,
    data: Data,
    *,
    model: str | None = None,
    port: str | None = None,
    emulate: bool = False,
    layers: bool = False,
    until: str | None = None,
    layer: str | None = None,
    progress: Progress | None = None,
) -> ParityResult:
    """Send samples to the device of a build and compare what it computes with host C and with the reference.

    `folder` may also be a bundle, for firmware of somebody's own with the link in it; then `port` is needed. With
    `layers` every tensor is compared, else the outputs; `until` names the last tensor to compare, `layer` a single one.
    After a difference the first tensor that parts is sought.
    """
    folder = Path(folder)
    models = open_models(folder)
    bundled = pick(models, model)
    firmware = None if is_bundle(folder) else load_firmware(folder)
    tensors = bundled.plan.all_tensors
    names = short_names(tensors)
    inputs = {names[name]: values for name, values in data.inputs.items()}
    if until is not None and layer is not None:
        raise EdgeError("a single layer is compared, or all until one: give either --layer or --until")
    until, layer = (None if name is None else find_layer(tensors, names, name) for name in (until, layer))
    with _connect_any(firmware, port, emulate) as link:
        return compare_on(link, bundled, models, firmware, inputs, Scope(layers, until, layer), progress)


def compare_on(
    link: Link,
    bundled: BundledModel,
    models: Sequence[BundledModel],
    firmware: Firmware | None,
    inputs: Mapping[str, Array],
    scope: Scope,
    progress: Progress | None = None,
    observe: Observe | None = None,
) -> ParityResult:
    """Parity on an open link, with the reason of a difference. `models`: all that the firmware has; `firmware`: None
    where it is somebody's own; `inputs`: [samples, ...] by the device's names."""
    expected = ExpectedFirmware({m.name: m.hash for m in models}, firmware.image_crc32 if firmware else None)
    known = engines(bundled)
    try:
        result = run_parity(
            *(link, bundled.name, inputs, known), scope=scope, firmware=expected, progress=progress, observe=observe
        )
    except WrongFirmwareError as error:
        if not (error.same_model and link.device.image_bytes):
            raise
        raise _explained(error, link, bundled, models, firmware, progress) from error
    names = short_names(bundled.plan.all_tensors)
    result = replace(result, stands_for={names[t.name]: t.sources for t in bundled.plan.all_tensors})
    if result.first_difference is None:
        return result
    sample = {name: values[result.first_difference.sample] for name, values in inputs.items()}
    return replace(result, diagnosis=_diagnosed(link, bundled, sample, known))


def _diagnosed(link: Link, bundled: BundledModel, sample: Sample, known: Mapping[str, Engine]) -> Diagnosis:
    try:
        return diagnose(link, bundled, sample, known)
    except DeviceError as error:  # what was compared so far is still worth showing
        return Diagnosis("undecided", f"looking for the reason ended: {error}", ADVICE["undecided"])


def _explained(
    error: DeviceError,
    link: Link,
    bundled: BundledModel,
    models: Sequence[BundledModel],
    firmware: Firmware | None,
    progress: Progress | None,
) -> DeviceError:
    """The same error with what differs in flash, which is read for that."""
    if firmware is None:
        cause = weights_difference(link, bundled.plan, progress)
    else:
        places = places_of(firmware.elf, {model.name: model.plan for model in models})
        cause = flash_difference(link, firmware.binary.read_bytes(), places, progress)
    return DeviceError(f"{error}; {cause.kind}: {cause.why}")


@contextmanager
def _connect_any(firmware: Firmware | None, port: str | None, emulate: bool) -> Iterator[Link]:
    if firmware is not None:
        with connect(firmware, load_board(firmware.board), port, emulate=emulate) as link:
            yield link
    elif port is not None:
        with Link.open(port) as link:
            yield link
    else:
        raise DeviceError("a bundle alone says nothing of a board: name the serial port of your device (--port)")


def engines(bundled: BundledModel) -> dict[str, _Engine]:
    """Host C and the reference, from one sample's inputs to all tensors, under the names that the device has."""
    return {"host C": _Engine(bundled, host=True), "reference": _Engine(bundled, host=False)}


class _Engine:
    def __init__(self, bundled: BundledModel, host: bool) -> None:
        self._plan = bundled.plan
        self._host = HostModel(bundled) if host else None
        self._names = short_names(bundled.plan.all_tensors)

    def __call__(self, sample: Sample) -> Mapping[str, Array]:
        inputs = {
            tensor.name: np.asarray(sample[self._names[tensor.name]]).reshape(tensor.type.shape)
            for tensor in self._plan.tensors[: len(self._plan.graph.inputs)]
        }
        if self._host is not None:
            batches = {name: values[None] for name, values in inputs.items()}
            tensors = {name: values[0] for name, values in self._host.run_tapped(batches).items()}
        else:
            tensors = run_all(self._plan.graph, inputs)
        return {self._names[name]: values for name, values in tensors.items() if name in self._names}


def flash(
    folder: Path | str, wishes: Wishes | None = None, *, board: str | None = None, progress: Report | None = None
) -> Flashed:
    """Write the image of a build to its board, and ask the device which image it runs then.

    `board`: refuse a build of any other one. `progress` gets a stage, what is done, and how much there is, 0 where that
    is not known. Raises ToolError and DeviceError.
    """
    return flash_build(
        Path(folder), wishes or Wishes(), progress or (lambda stage, done, total: None), board_name=board
    )


def profile(out: Path | str, model: str | None = None) -> Profile:
    """Instructions, flash, RAM and stack of a build, counted in the emulator, beside what was predicted."""
    firmware, board, models = open_build(out)
    bundled = pick(models, model)
    return profile_emulated(board, firmware, bundled.name).beside(predict_costs(bundled.plan))


def profile_on(port: str, out: Path | str, model: str | None = None) -> BoardProfile:
    """Cycles and stack of each step of a build's model, on the board that is connected to `port`."""
    firmware, board, models = open_build(out)
    bundled = pick(models, model)
    expected = ExpectedFirmware({m.name: m.hash for m in models}, firmware.image_crc32)
    with connect(firmware, board, port) as link:
        return profile_board(link, bundled.name, expected, predict_costs(bundled.plan))


__all__ = [
    "CustomKernel",
    "CustomOp",
    "EdgeError",
    "Optimize",
    "Options",
    "Recipe",
    "apply_recipe",
    "build",
    "calibrate",
    "check_custom",
    "check_model",
    "connect",
    "effort",
    "evaluate",
    "explain",
    "flash",
    "generate",
    "get_target",
    "load",
    "load_board",
    "load_data",
    "open_build",
    "parity",
    "profile",
    "profile_on",
    "quality",
    "quantize",
    "read_explanation",
    "register_custom",
    "run",
    "save",
    "with_explanation",
    "with_rule",
]
