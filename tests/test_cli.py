"""The command's exit codes and errors: 0 good, 1 a check failed, 2 bad use or input in one line without traceback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from command import good, refused, rlx_edge
from rich.console import Console

from rlx_edge.cgen.bundle import seal
from rlx_edge.report.tables import table
from rlx_edge.resources import digits_dir

FLOAT, CALIBRATION, HELD_OUT = (
    digits_dir() / name for name in ("digits.onnx", "digits_calibration.npz", "digits_test.npz")
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a quantized model and a build of it."""
    folder = tmp_path_factory.mktemp("made")
    good("quantize", FLOAT, "--data", CALIBRATION, "-o", "digits.rlx", cwd=folder)
    good("build", "digits.rlx", "-o", "build", cwd=folder)
    return folder


@pytest.fixture
def build(made: Path, tmp_path: Path) -> Path:
    """A copy of the build that a test may damage."""
    return Path(shutil.copytree(made / "build", tmp_path / "build"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.onnx", None, "no such file"),
        ("empty.tflite", b"", "empty"),
        ("cut.onnx", FLOAT.read_bytes()[:9000], "truncated"),
        ("picture.rlx", b"\x89PNG\r\n\x1a\n" + bytes(64), "is not a .rlx file"),
        ("notes.txt", b"hello there, this is no model", "no model that rlx-edge knows"),
    ],
)
def test_bad_model(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    line = refused("inspect", path)
    assert name in line
    assert says in line


def test_cut_rlx(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.rlx"
    path.write_bytes((made / "digits.rlx").read_bytes()[:-100])
    assert "cut.rlx" in refused("inspect", path)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.full((4, 1, 8, 8), np.nan, np.float32)}, "NaN"),
        ({"x": np.zeros((4, 1, 8, 9), np.float32)}, "[1, 8, 9]"),
        ({"x": np.zeros((4, 1, 8, 8), np.int16)}, "int16"),
        ({"x": np.zeros((0, 1, 8, 8), np.float32)}, "no samples"),
        ({"images": np.zeros((4, 1, 8, 8), np.float32)}, "images"),
    ],
)
def test_bad_data(tmp_path: Path, arrays: dict[str, np.ndarray], says: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    line = refused("quantize", FLOAT, "--data", path, "-o", tmp_path / "out.rlx")
    assert "data.npz" in line
    assert says in line
    assert not (tmp_path / "out.rlx").exists()


def test_bad_options(made: Path, tmp_path: Path) -> None:
    model = made / "digits.rlx"
    assert "mps2-an386" in refused("build", model, "--board", "mps2", "-o", tmp_path / "b")
    assert "cortex-m4" in refused("generate", model, "--target", "cortex-m99", "-o", tmp_path / "c")
    assert "reference" in refused("evaluate", model, "--data", HELD_OUT, "--engine", "gpu")
    assert "top1" in refused("evaluate", model, "--data", HELD_OUT, "--metric", "best")
    assert ".tflite" in refused("convert", model, "-o", tmp_path / "out.pb")
    other_rule = rlx_edge("convert", model, "-o", tmp_path / "out.tflite", "--requant", "onnx")
    assert other_rule.returncode == 2
    assert "convert with --requant tflm" in other_rule.stderr
    assert ".npz" in refused("run", model, "--data", HELD_OUT, "-o", tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_bad_use() -> None:
    assert "No such command 'deplay'" in refused("deplay")
    assert "rlx-edge run --help" in refused("run")
    assert "--foo" in refused("inspect", FLOAT, "--foo")


def test_output_that_cannot_be_written(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "out"
    for words in (["build"], ["generate"]):
        assert str(tmp_path / "file") in refused(*words, made / "digits.rlx", "-o", inside)
    assert "out.rlx" in refused("convert", FLOAT, "-o", inside / "out.rlx")


@pytest.mark.parametrize("command", [("build", "-o", "out"), ("generate", "-o", "out"), ("profile",)])
def test_a_float_model_is_not_built(tmp_path: Path, command: tuple[str, ...]) -> None:
    line = refused(command[0], FLOAT, *command[1:], cwd=tmp_path)
    assert line.startswith(f"{FLOAT}: is a float model")
    assert "rlx-edge quantize" in line
    assert list(tmp_path.iterdir()) == []


def test_inspect_of_a_float_model_says_what_to_do() -> None:
    done = rlx_edge("inspect", FLOAT, "--batch")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "rlx-edge quantize" in done.stderr
    assert "f32[N, 10]" in done.stdout and "f32[1, 10]" not in done.stdout


def test_generate_says_what_it_replaces(made: Path, tmp_path: Path) -> None:
    for name in ("first,second", "second"):
        models = [made / "digits.rlx"] * len(name.split(","))
        done = rlx_edge("generate", *models, "--name", name, "-o", tmp_path)
        assert done.returncode == 0, done.stderr
    assert "replaced second" in done.stderr
    assert "removed first" in done.stderr
    assert not (tmp_path / "first").exists()


def test_deploy_checks_before_it_calibrates(tmp_path: Path) -> None:
    missing = tmp_path / "data.npz"
    assert "mps2-an386" in refused("deploy", FLOAT, "--data", missing, "--board", "mps2")
    assert "--emulate" in refused("deploy", FLOAT, "--data", missing, "--board", "microbit")
    (tmp_path / "file").write_text("")
    assert "other files" in refused("deploy", FLOAT, "--data", missing, "-o", tmp_path)


def test_folders_that_are_no_builds(made: Path, tmp_path: Path) -> None:
    for words in (("profile",), ("parity", "--data", HELD_OUT)):
        assert refused(words[0], tmp_path / "none", *words[1:]) == f"there is no folder {tmp_path / 'none'}"
    assert "build it for a board first" in refused("profile", made / "build" / "bundle")


def test_few_samples_are_warned_of(tmp_path: Path) -> None:
    done = rlx_edge("quantize", FLOAT, "--data", CALIBRATION, "--samples", "0:1", "-o", tmp_path / "out.rlx")
    assert done.returncode == 0
    assert "warning: only 1 sample\n" in done.stderr
    assert "over 1 sample\n" in done.stdout


def test_version() -> None:
    assert good("--version").strip() == f"rlx-edge {version('rlx-edge')}"
    done = subprocess.run([sys.executable, "-m", "rlx_edge", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"rlx-edge {version('rlx-edge')}"


@pytest.mark.parametrize("columns", [60, 80])
def test_narrow_tables_keep_their_first_column(columns: int) -> None:
    rows = [("board-of-some-length", "cortex-m4", 4_194_304, 4_194_304, "emulator, board (untested)")]
    console = Console(width=columns)
    with console.capture() as shown:
        console.print(table("boards", ("board", "core", "flash", "RAM", "runs in"), rows))
    assert "board-of-some-length" in shown.get()


def test_a_board_that_nobody_has_tested_is_called_so(made: Path, tmp_path: Path) -> None:
    """In the list, and where firmware is built; what needs an emulator says that none runs it."""
    assert "board (untested)" in good("boards")
    facts = {board["name"]: board for board in json.loads(good("boards", "--json"))["boards"]}
    assert facts["pico"]["hardware"] and not facts["pico"]["hardware_tested"] and not facts["pico"]["emulated"]
    assert "GP0 (TX)" in facts["pico"]["wiring"]
    done = rlx_edge("build", made / "digits.rlx", "--board", "pico", "-o", tmp_path / "build")
    assert done.returncode == 0
    assert "pico is untested: no such board was at hand" in done.stderr
    assert refused("profile", tmp_path / "build").startswith("pico: no emulator runs this board")
    assert "name the serial port it is on (--port)" in refused("parity", tmp_path / "build", "--data", HELD_OUT)
    emulated = rlx_edge("build", made / "digits.rlx", "-o", tmp_path / "emulated")
    assert "untested" not in emulated.stderr


def test_json(made: Path) -> None:
    """The keys that scripts rely on."""
    model = made / "digits.rlx"
    facts = json.loads(good("evaluate", model, "--data", HELD_OUT, "--json"))
    assert facts["n"] == 500
    assert facts["top1"] > 0.96
    facts = json.loads(good("inspect", model, "--json"))
    assert {"schema", "macs", "parameters", "layers"} <= facts.keys()
    (given,), (result,) = facts["inputs"], facts["outputs"]
    assert given.keys() == result.keys() == {"name", "dtype", "shape", "scale", "zero_point"}
    assert given["dtype"] == "i8" and given["scale"] > 0
    facts = json.loads(good("profile", made / "build", "--json"))
    assert facts["instructions"] == sum(layer["instructions"] for layer in facts["layers"])
    assert {"board", "flash_bytes", "ram_bytes", "stack_bytes", "link_flash_bytes", "link_ram_bytes"} <= facts.keys()


def test_parity_is_exact(made: Path) -> None:
    facts = json.loads(good("parity", made / "build", "--data", HELD_OUT, "--samples", "0:4", "--json"))
    wanted = {"board": "mps2-an386", "inputs": 4, "compared_bytes": 80, "differing_bytes": 0, "exact": True}
    assert facts.items() >= wanted.items()


def test_parity_fails_when_engines_differ(build: Path) -> None:
    """A kernel of the bundle is changed after the build, so that the host's C is no longer the device's."""
    kernel = build / "bundle" / "rlx" / "rlx_max_pool_s8.c"
    changed = kernel.read_text().replace("{-128, -128, -128, -128}", "{0, 0, 0, 0}")
    assert changed != kernel.read_text()
    kernel.write_text(changed)
    bundle = build / "bundle"
    listed = [f for f in bundle.rglob("*") if f.is_file() and f.name != "bundle.json"]
    seal(bundle, {str(f.relative_to(bundle)): f.read_bytes() for f in listed})
    done = rlx_edge("parity", build, "--data", HELD_OUT, "--samples", "0:2")
    assert done.returncode == 1
    assert "NOT exact" in done.stdout
    assert "max_pool" in done.stdout


def test_parity_refuses_a_stale_device(made: Path, build: Path) -> None:
    """The bundle is generated anew from another model, and the firmware is not built again."""
    good("quantize", FLOAT, "--data", CALIBRATION, "--samples", "0:20", "-o", build / "digits.rlx")
    good("generate", build / "digits.rlx", "--target", "cortex-m4", "-o", build / "bundle")
    line = refused("parity", build, "--data", HELD_OUT)
    assert "the device runs another version of 'digits'" in line


def test_parity_refuses_what_is_no_build(tmp_path: Path) -> None:
    assert "is not a" in refused("parity", tmp_path, "--data", HELD_OUT)


def test_doctor() -> None:
    done = rlx_edge("doctor")
    assert done.returncode in (0, 1)
    assert ("missing" in done.stdout) == (done.returncode == 1)


def test_names_from_models_are_shown_as_text(tmp_path: Path) -> None:
    """Square brackets in a file's name are no markup."""
    path = tmp_path / "[red]ünknown.onnx"
    assert "[red]" in refused("inspect", path)


def test_run_stores_what_its_integers_mean(made: Path, tmp_path: Path) -> None:
    good("run", made / "digits.rlx", "--data", HELD_OUT, "--samples", "0:3", "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as stored:
        real = (stored["probabilities"].astype(int) - stored["probabilities_zero_point"]) * stored[
            "probabilities_scale"
        ]
    assert real.shape == (3, 10)
    np.testing.assert_allclose(real.sum(axis=1), 1, atol=0.05)
