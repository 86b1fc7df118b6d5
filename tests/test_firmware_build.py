"""Building firmware: equal inputs give equal bytes, half a build is recognized, and what does not fit says so."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bench_device import BENCH, build_bench, make_bundle

from rlx_edge.device.boards import board_names, load_board
from rlx_edge.device.build import (
    Firmware,
    build_firmware,
    check_build_folder,
    claim_build_folder,
    load_firmware,
    soc_parts,
)
from rlx_edge.device.linker import linker_script
from rlx_edge.device.sources import board_header, board_setup, model_table
from rlx_edge.device.toolchain import COMMON_FLAGS, chip_flags, find_compiler, link
from rlx_edge.errors import EdgeError, ToolError
from rlx_edge.resources import firmware_dir

BOARD = load_board("mps2-an386")
SOC = firmware_dir() / "soc"


def test_equal_inputs_give_equal_bytes_wherever_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_EDGE_CACHE", str(tmp_path / "cache 1"))
    one = build_bench(tmp_path / "one", BOARD)
    monkeypatch.setenv("RLX_EDGE_CACHE", str(tmp_path / "cache 2"))
    monkeypatch.chdir(tmp_path)
    two = build_bench(tmp_path / "another place", BOARD)
    for name in ("firmware.elf", "firmware.bin", "bare.elf", "build.json", "link.ld"):
        assert (one.elf.parent / name).read_bytes() == (two.elf.parent / name).read_bytes(), name
    assert str(tmp_path).encode() not in one.elf.read_bytes()


def test_objects_can_have_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is compiled anew, into it, and the user's cache is not looked at."""
    monkeypatch.setenv("RLX_EDGE_CACHE", str(tmp_path / "cache"))
    bundle = make_bundle(tmp_path / "bundle")
    one = build_firmware(bundle, ["toy"], BOARD, tmp_path / "one", objects=tmp_path / "objects")
    assert not (tmp_path / "cache").exists()
    assert len(list((tmp_path / "objects").glob("*.o"))) > 10
    assert build_firmware(bundle, ["toy"], BOARD, tmp_path / "two").elf.read_bytes() == one.elf.read_bytes()


def test_the_image_is_what_its_facts_say(tmp_path: Path) -> None:
    firmware = build_bench(tmp_path, BOARD)
    image = firmware.binary.read_bytes()
    stack_top, reset = struct.unpack_from("<2I", image)
    assert stack_top == BOARD.placement.data.start + BOARD.stack_bytes
    assert reset & 1
    assert 0 < reset < len(image)
    assert firmware.image_crc32 == zlib.crc32(image)
    assert firmware.image_bytes == len(image) == firmware.sizes.flash_bytes + firmware.sizes.link_flash_bytes
    assert firmware.sizes.stack_bytes == BOARD.stack_bytes
    assert 48 <= firmware.sizes.ram_bytes < 200  # the toy's arena is 48 bytes
    assert firmware.sizes.flash_bytes < 2048
    assert load_firmware(firmware.elf.parent) == firmware


def test_half_a_build_is_recognized(tmp_path: Path) -> None:
    out = build_bench(tmp_path, BOARD).elf.parent
    facts = (out / "build.json").read_text()
    for spoiled, message in (
        ("{", "cannot be read"),
        (json.dumps({"schema": "rlx-edge build 0"}), "another rlx-edge"),
        ("[" * 100_000, r"build.json cannot be read \(it is nested too deep\)"),
        ("[1]", r"build.json cannot be read \(it is no JSON object\)"),
        (json.dumps({**json.loads(facts), "image_sha256": "00"}), "is not the file that was built"),
    ):
        (out / "build.json").write_text(spoiled)
        with pytest.raises(EdgeError, match=message):
            load_firmware(out)
    (out / "build.json").unlink()
    with pytest.raises(EdgeError, match=r"is not a finished build \(build.json is missing\)"):
        load_firmware(out)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    return build_bench(tmp_path_factory.mktemp("built"), BOARD)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("elf", 1),
        ("binary", None),
        ("board", 5),
        ("app", []),
        ("models", "toy"),
        ("models", [1]),
        ("image_bytes", True),
        ("image_crc32", "abc"),
        ("image_sha256", {}),
        ("compiler", 1),
        ("sizes", 3),
        ("sizes", {"flash_bytes": 1}),
    ],
)
def test_an_edited_fact_is_told(built: Firmware, tmp_path: Path, name: str, value: object) -> None:
    facts = json.loads((built.elf.parent / "build.json").read_text())
    (tmp_path / "build.json").write_text(json.dumps({**facts, name: value}))
    with pytest.raises(
        ToolError, match=r"build.json cannot be read \('\w+' is not as it was written\); build it again"
    ):
        load_firmware(tmp_path)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["notes.txt", "build.json", "firmware.bin", "link.ld", ".hidden"])
def test_a_folder_of_other_files_is_left_alone(tmp_path: Path, name: str) -> None:
    bundle, out = make_bundle(tmp_path / "bundle"), tmp_path / "out"
    out.mkdir()
    (out / name).write_text("{}")
    for refused in (
        lambda: check_build_folder(out),
        lambda: claim_build_folder(out),
        lambda: build_firmware(bundle, ["toy"], BOARD, out, app=BENCH),
    ):
        with pytest.raises(ToolError, match="out: holds other files and is no build made by rlx-edge; choose another"):
            refused()
    assert contents(out) == {out / name: b"{}"}


def test_a_build_may_replace_a_build(built: Firmware, tmp_path: Path) -> None:
    """A finished one, also without the marker; half a one; and what is not there or empty is free for all."""
    out = tmp_path / "out"
    check_build_folder(out)
    assert not out.exists()
    claim_build_folder(out)
    (out / "link.ld").write_text("half a build")
    make_bundle(out / "bundle")
    build_firmware(out / "bundle", ["toy"], BOARD, out, app=BENCH)
    (out / ".rlx-edge-build").unlink()
    build_firmware(out / "bundle", ["toy"], BOARD, out, app=BENCH)
    bundle = make_bundle(tmp_path / "only a bundle" / "bundle")
    build_firmware(bundle, ["toy"], BOARD, bundle.parent, app=BENCH)


@pytest.mark.parametrize("name", ["stdint", "string"])
def test_a_model_hides_no_header(tmp_path: Path, name: str) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    (bundle / "toy").rename(bundle / name)
    for path in sorted((bundle / name).iterdir()):
        text = path.read_text().replace("toy", name).replace("TOY_ARENA", f"{name.upper()}_ARENA")
        path.with_name(path.name.replace("toy", name)).write_text(text.replace(f"{name.upper()}_H", "MODEL_H"))
    for path in (bundle / name).glob("toy*"):
        path.unlink()
    assert build_firmware(bundle, [name], BOARD, tmp_path / "out").models == (name,)


def test_a_model_with_another_header_is_compiled_anew(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    before = build_firmware(bundle, ["toy"], BOARD, tmp_path / "out").sizes.ram_bytes
    header = bundle / "toy" / "toy.h"
    header.write_text(header.read_text() + "\n#undef TOY_ARENA_BYTES\n#define TOY_ARENA_BYTES 4096u\n")
    build_firmware(bundle, ["toy"], BOARD, tmp_path / "out")
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-S", tmp_path / "out" / "firmware.elf"], capture_output=True, text=True, check=True
    ).stdout
    assert before < 4096
    assert re.search(r"^\w+ 00001000 \w rlx_app_arena$", symbols, re.MULTILINE)


def test_paths_with_commas_spaces_and_equals_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build_bench(tmp_path / "plain", BOARD)
    folder = tmp_path / "a,b c=d"
    monkeypatch.setenv("RLX_EDGE_CACHE", str(folder / "cache"))
    odd = build_bench(folder, BOARD)
    assert odd.elf.read_bytes() == plain.elf.read_bytes()
    assert odd.elf.with_suffix(".map").stat().st_size > 0


def test_the_linkers_own_reason_is_told(tmp_path: Path) -> None:
    bundle, app = make_bundle(tmp_path / "bundle"), tmp_path / "app.c"
    app.write_text(
        '#include "rlx_soc.h"\nint nowhere(void);\nint main(void);\nint main(void) { return nowhere(); }\n'
        "void rlx_app_fault(const rlx_fault_t *f) { (void)f; }\n"
    )
    told = r"^linking firmware.elf failed: \S*app.c:4: undefined reference to `nowhere'$"
    with pytest.raises(ToolError, match=told):
        build_firmware(bundle, ["toy"], BOARD, tmp_path / "out", app=app)
    full = tmp_path / "firmware.elf"
    full.symlink_to("/dev/full")
    with pytest.raises(ToolError, match=r"^linking \S+ failed: final link failed: No space left on device$"):
        link(find_compiler(), [], [], tmp_path / "out" / "link.ld", full)


def test_a_failing_build_leaves_no_finished_one(tmp_path: Path) -> None:
    out = build_bench(tmp_path, BOARD).elf.parent
    weights = tmp_path / "bundle" / "toy" / "toy_weights.c"
    weights.write_text("int broken = ;\n")
    with pytest.raises(EdgeError, match=r"compiling bundle/toy/toy_weights.c failed: .*toy_weights.c:1:14: error: "):
        build_firmware(tmp_path / "bundle", ["toy"], BOARD, out, app=BENCH)
    with pytest.raises(EdgeError, match="is not a finished build"):
        load_firmware(out)


def test_builds_side_by_side_do_not_disturb_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_EDGE_CACHE", str(tmp_path / "cache"))
    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(lambda n: build_bench(tmp_path / str(n), BOARD), range(2)))
    assert len({firmware.image_crc32 for firmware in built}) == 1
    assert {path.suffix for path in (tmp_path / "cache" / "objects").iterdir()} == {".o"}


@pytest.mark.parametrize(
    ("line", "board", "message"),
    [
        (
            "const char big[200000] = {1};",
            "stm32vldiscovery",
            r"does not fit stm32vldiscovery: it needs \d+ bytes of flash, and there are 131072 \(\d+ too many\)",
        ),
        (
            "static char big[9000]; char *grow(void) { return big; }",
            "stm32vldiscovery",
            r"does not fit stm32vldiscovery: it needs \d+ bytes of ram, 1536 of them stack, and there are 8192 \(",
        ),
    ],
)
def test_an_image_that_does_not_fit(tmp_path: Path, line: str, board: str, message: str) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    source = bundle / "toy" / "toy_weights.c"
    user = "grow" if "grow" in line else "big"
    source.write_text(
        f"{source.read_text()}\n{line}\nextern const void *volatile keep;\nconst void *volatile keep = {user};\n"
    )
    app = tmp_path / "app.c"
    app.write_text(
        '#include "rlx_soc.h"\nextern const void *volatile keep;\nint main(void);\n'
        "int main(void) { return keep != 0; }\nvoid rlx_app_fault(const rlx_fault_t *f) { (void)f; }\n"
    )
    with pytest.raises(EdgeError, match=message) as caught:
        build_firmware(bundle, ["toy"], load_board(board), tmp_path / "out", app=app)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    with pytest.raises(EdgeError, match=r"has no model kws \(kws/kws.h is missing\)"):
        build_firmware(bundle, ["kws"], BOARD, tmp_path / "out", app=BENCH)
    with pytest.raises(EdgeError, match=r"is not a bundle \(rlx/rlx.h is missing\)"):
        build_firmware(tmp_path, [], BOARD, tmp_path / "out", app=BENCH)
    with pytest.raises(EdgeError, match=r"unknown application nonsense; known: .*parity"):
        build_firmware(bundle, ["toy"], BOARD, tmp_path / "out", app="nonsense")
    (tmp_path / "file").touch()
    with pytest.raises(EdgeError, match=r"file: cannot be written: Not a directory; choose another folder"):
        build_firmware(bundle, ["toy"], BOARD, tmp_path / "file", app=BENCH)
    monkeypatch.setenv("RLX_EDGE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EdgeError, match=r"the cache .* cannot be made .*: set RLX_EDGE_CACHE"):
        build_firmware(bundle, ["toy"], BOARD, tmp_path / "out", app=BENCH)
    monkeypatch.setenv("RLX_EDGE_ARM_GCC", "/no/such/gcc")
    with pytest.raises(EdgeError, match=r"RLX_EDGE_ARM_GCC names /no/such/gcc, which is not there: install it"):
        build_firmware(bundle, ["toy"], BOARD, tmp_path / "out", app=BENCH)
    monkeypatch.delenv("RLX_EDGE_ARM_GCC")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EdgeError, match=r"arm-none-eabi-gcc is not there: install it .*gcc-arm-none-eabi"):
        build_firmware(bundle, ["toy"], BOARD, tmp_path / "out", app=BENCH)


def test_two_models_share_the_arena_of_the_larger() -> None:
    table = model_table(["kws", "vww"])
    assert "{&kws_model, &vww_model}" in table
    assert "RLX_ALIGNAS(16) uint8_t kws[KWS_ARENA_BYTES];\n    RLX_ALIGNAS(16) uint8_t vww[VWW_ARENA_BYTES];" in table
    assert "rlx_app_arena[sizeof(arenas_t)]" in table
    assert "rlx_app_model_count = 2u" in table


def test_the_linker_script_says_where_it_comes_from() -> None:
    script = linker_script(BOARD)
    assert script.startswith("/* Written by rlx-edge from boards/mps2-an386.toml")
    for symbol in ("__rlx_image_start", "__rlx_image_end", "__stack_top", "__stack_limit", ".noinit"):
        assert symbol in script


@pytest.mark.parametrize("name", board_names())
def test_all_boards_build_without_a_warning(tmp_path: Path, name: str) -> None:
    """The whole parity firmware, for kernels with the toy's: `make boards` builds the digits so."""
    board = load_board(name)
    firmware = build_firmware(
        make_bundle(tmp_path / "bundle"), ["toy"], board, tmp_path / "out", warnings_are_errors=True
    )
    assert firmware.board == name
    assert 1000 < firmware.image_bytes <= board.placement.code.bytes


@pytest.mark.parametrize("name", board_names())
def test_the_soc_sources_compile_without_warnings(tmp_path: Path, name: str) -> None:
    board = load_board(name)
    (tmp_path / "rlx_board.h").write_text(board_header(board))
    (tmp_path / "rlx_board_setup.c").write_text(board_setup(board) if board.setup else "typedef int nothing;\n")
    own = [SOC / f"{part}.c" for part in soc_parts(board)]
    runtime = firmware_dir() / "runtime" / "rlx_memory.c"
    sources = [str(path) for path in [*own, tmp_path / "rlx_board_setup.c", runtime]]
    strict = ["-Werror", "-fsyntax-only", "-I", str(tmp_path), "-I", str(SOC), *sources]
    subprocess.run([find_compiler().command, *COMMON_FLAGS, *chip_flags(board.chip), *strict], check=True)
    clang = shutil.which("clang")
    if clang is not None:
        unknown = ("-mfpu=auto", "-fno-tree-loop-distribute-patterns")
        flags = [flag for flag in (*COMMON_FLAGS, *chip_flags(board.chip)) if flag not in unknown]
        subprocess.run([clang, "--target=arm-none-eabi", *flags, *strict], check=True)
