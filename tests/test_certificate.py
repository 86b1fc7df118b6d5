"""Certificates of parity: from a real run, the same bytes each time; what was tampered with is found and named."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command import good, refused, rlx_edge
from models import ModelMaker

from rlx_edge.certificate.archive import read_archive, write_archive
from rlx_edge.certificate.facts import CERTIFICATE, CHECKSUM, MAX_BYTES, Certificate, read_certificate
from rlx_edge.certificate.issue import sealed
from rlx_edge.certificate.verify import Verdict, read_file, verify
from rlx_edge.cgen.bundle import seal
from rlx_edge.device.boards import load_board
from rlx_edge.device.emulator import Emulator
from rlx_edge.errors import EdgeError
from rlx_edge.formats.rlx import rlx_bytes
from rlx_edge.ir import DType, GraphBuilder, QuantParams, TensorType
from rlx_edge.ir.ops import Pad
from rlx_edge.ir.ops.control import CustomFn
from rlx_edge.resources import digits_dir

MODEL, DATA = digits_dir() / "digits.onnx", digits_dir() / "digits_test.npz"
SAMPLES = ("--samples", "0:3")
RLX = "bundle/digits/digits.rlx"
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a build, and a certificate of three inputs and all tensors."""
    folder = tmp_path_factory.mktemp("made")
    good("quantize", MODEL, "--data", digits_dir() / "digits_calibration.npz", "-o", "digits.rlx", cwd=folder)
    good("build", "digits.rlx", "-o", "build", cwd=folder)
    good("parity", "build", "--data", DATA, *SAMPLES, "--layers", "--certificate", "digits.zip", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def whole(made: Path) -> bytes:
    return (made / "digits.zip").read_bytes()


@pytest.fixture(scope="module")
def members(whole: bytes) -> Members:
    archive = read_archive(whole)
    assert archive.damage == ()
    return dict(archive.members)


def verified(content: bytes, **asked: Any) -> Verdict:
    return verify(read_archive(content), **asked)


def detail(verdict: Verdict, name: str) -> str:
    """What a check that does not hold says."""
    (found,) = [check for check in verdict.checks if check.name == name]
    assert found.holds is False, verdict.checks
    return found.detail


def flipped(content: bytes, at: int, bits: int = 1) -> bytes:
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


def found_damage(content: bytes) -> str:
    verdict = verified(content)
    assert verdict.certificate is None and not verdict.good
    return detail(verdict, "intact")


# ---- A certificate as it was written ----------------------------------------------------------------------------


def test_everything_holds(made: Path) -> None:
    """Also built again without any cached object, and run again in the emulator without semihosting."""
    facts = json.loads(good("verify", "digits.zip", "--rebuild", "--rerun", "--json", cwd=made))
    assert facts["good"] is True
    assert facts["statement"] == "equal on these 3 inputs"
    assert {check["name"]: check["holds"] for check in facts["checks"]} == dict.fromkeys(
        (
            "intact",
            "consistent",
            "generated again",
            "recomputed by host C",
            "recomputed by reference",
            "rebuilt",
            "rerun",
        ),
        True,
    )


def test_what_was_not_asked_for_is_said(made: Path) -> None:
    done = rlx_edge("verify", "digits.zip", cwd=made)
    assert done.returncode == 0 and done.stderr == ""
    assert "not asked for (--rebuild)" in done.stdout and "not asked for (--rerun, or --port)" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("equal on these 3 inputs: intact, consistent, ")
    assert "rebuilt" not in last and "rerun" not in last


def test_the_same_content_gives_the_same_bytes(made: Path, whole: bytes, tmp_path: Path) -> None:
    """Built, run and certified once more, in another place."""
    shutil.copy(made / "digits.rlx", tmp_path)
    good("build", "digits.rlx", "-o", "another place", cwd=tmp_path)
    asked = ("--data", DATA, *SAMPLES, "--layers", "--certificate", "again.zip")
    facts = json.loads(good("parity", "another place", *asked, "--json", cwd=tmp_path))
    assert facts["certificate"] == "again.zip" and facts["exact"] is True
    assert (tmp_path / "again.zip").read_bytes() == whole
    assert str(tmp_path).encode() not in whole and str(made).encode() not in whole


def test_facts(members: Members) -> None:
    facts = read_certificate(members[CERTIFICATE])
    assert (facts.model, facts.models, facts.samples) == ("digits", ("digits",), 3)
    assert facts.engines == ("host C", "reference")
    assert facts.where.emulated and not facts.where.hardware_tested
    assert facts.where.chip_uid == "none in the emulator"
    assert facts.files.keys() == members.keys() - {CERTIFICATE, CHECKSUM}
    assert {"Arm compiler", "host compiler", "emulator", "rlx-edge", "numpy"} <= facts.tools.keys()
    assert "QEMU" in facts.tools["emulator"] and "gcc" in facts.tools["Arm compiler"]
    assert len(facts.tensors) == 11 and facts.not_compared == ()
    assert facts.compared_bytes == 2 * sum(tensor.bytes for tensor in facts.tensors)


@pytest.mark.parametrize(
    ("board", "uid"),
    [("microbit", "0300000078563412"), ("netduinoplus2", "cannot be read")],
    ids=["read", "unreadable"],
)
def test_the_chips_unique_number_is_asked_for_on_a_port(made: Path, tmp_path: Path, board: str, uid: str) -> None:
    """QEMU's nRF51 has one, the same in all; its STM32F405 lacks that memory, so that reading it is a fault."""
    build = tmp_path / "build"
    good("build", made / "digits.rlx", "--board", board, "-o", build)
    with Emulator(load_board(board), build / "firmware.elf") as emulator:
        asked = ("--port", emulator.port, "--data", made / DATA, *SAMPLES)
        good("parity", build, *asked, "--certificate", "board.zip", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "board.zip") as archive:
        assert read_certificate(archive.read(CERTIFICATE)).where.chip_uid == uid


def test_no_certificate_of_a_difference(made: Path, tmp_path: Path) -> None:
    """A kernel of the bundle is changed after the build, so that the host's C is no longer the device's."""
    build = Path(shutil.copytree(made / "build", tmp_path / "build"))
    bundle = build / "bundle"
    kernel = bundle / "rlx" / "rlx_max_pool_s8.c"
    kernel.write_text(kernel.read_text().replace("{-128, -128, -128, -128}", "{0, 0, 0, 0}"))
    listed = [f for f in bundle.rglob("*") if f.is_file() and f.name != "bundle.json"]
    seal(bundle, {str(f.relative_to(bundle)): f.read_bytes() for f in listed})
    done = rlx_edge("parity", build, "--data", DATA, *SAMPLES, "--certificate", tmp_path / "no.zip")
    assert done.returncode == 1
    assert "no certificate was written" in done.stderr and "NOT exact" in done.stdout
    assert not (tmp_path / "no.zip").exists()


def test_bad_use(made: Path, tmp_path: Path) -> None:
    asked = ("--data", DATA, *SAMPLES, "--certificate")
    assert ".zip" in refused("parity", made / "build", *asked, tmp_path / "certificate.pdf")
    assert "make it first" in refused("parity", made / "build", *asked, tmp_path / "none" / "c.zip")
    line = refused("parity", made / "build" / "bundle", *asked, tmp_path / "c.zip")
    assert "a certificate is issued for a build" in line
    assert refused("verify", tmp_path / "none.zip") == f"{tmp_path / 'none.zip'}: there is no such file"
    for content in (b"", b"PK", b"hello", bytes(4000), b"PK\x05\x06" + bytes(18)):
        (tmp_path / "c.zip").write_bytes(content)
        with pytest.raises(EdgeError, match=r"c.zip: is no certificate that rlx-edge wrote"):
            read_file(tmp_path / "c.zip")


# ---- Files that somebody made with intent ------------------------------------------------------------------------


def resealed(
    members: Members,
    files: Mapping[str, bytes] | None = None,
    change: Callable[[Certificate], Certificate] | None = None,
) -> bytes:
    """A forger's work: files and facts are changed, and all hashes are made to fit."""
    facts = read_certificate(members[CERTIFICATE])
    kept = {name: content for name, content in members.items() if name not in (CERTIFICATE, CHECKSUM)} | dict(
        files or {}
    )
    return sealed(facts if change is None else change(facts), kept)


def test_resealed_as_it_was(members: Members, whole: bytes) -> None:
    assert resealed(members) == whole


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"statement": "equal on all inputs"}, "it says 'equal on all inputs' of 3 inputs"),
        ({"samples": 300}, "it says 'equal on these 3 inputs' of 300 inputs"),
        ({"compared_bytes": 9}, "compared_bytes is 9, the tensors and engines make"),
        ({"engines": ()}, "compared_bytes is"),
        ({"engines": ("reference",)}, "compared_bytes is"),
        ({"model": "kws"}, "its models or tensors are listed wrongly"),
        ({"tensors": ()}, "compared_bytes is"),
        ({"models": ("digits", "kws")}, "build/build.json is of another build"),
    ],
)
def test_facts_that_contradict_each_other(members: Members, changes: dict[str, Any], says: str) -> None:
    content = resealed(members, change=lambda facts: dataclasses.replace(facts, **changes))
    assert says in detail(verified(content), "consistent")


def test_another_image_than_the_device_ran(members: Members) -> None:
    content = resealed(members, {"build/firmware.bin": flipped(members["build/firmware.bin"], 3000)})
    assert "another image than build/firmware.bin" in detail(verified(content), "consistent")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"board": "microbit"}, "its board differs"),
        ({"models": []}, "its models differs"),
        ({"image_sha256": "0" * 64}, "its image_sha256 differs"),
        ({"compiler": "gcc 99"}, "its compiler differs"),
    ],
)
def test_another_build_than_the_device_ran(members: Members, change: dict[str, object], says: str) -> None:
    told = {**json.loads(members["build/build.json"]), **change}
    content = resealed(members, {"build/build.json": json.dumps(told).encode()})
    assert says in detail(verified(content), "consistent")
    for broken in (b"", b"[1]", b"[" * 100_000):
        assert "its board differs" in detail(verified(resealed(members, {"build/build.json": broken})), "consistent")


def test_other_outputs_than_were_compared(members: Members) -> None:
    content = resealed(members, {"outputs/0.npy": flipped(members["outputs/0.npy"], 140)})
    assert "outputs/0.npy is not what was compared" in detail(verified(content), "consistent")


def test_invented_outputs_do_not_come_out_again(members: Members) -> None:
    """The forger changes an output and its tensor's hash alike."""
    output = flipped(members["outputs/0.npy"], 140)

    def change(facts: Certificate) -> Certificate:
        digest = hashlib.sha256(output[128:]).hexdigest()
        tensors = [dataclasses.replace(t, sha256=digest) if t.tensor == "probabilities" else t for t in facts.tensors]
        return dataclasses.replace(facts, tensors=tuple(tensors))

    verdict = verified(resealed(members, {"outputs/0.npy": output}, change))
    for engine in ("host C", "reference"):
        assert detail(verdict, f"recomputed by {engine}") == "other bytes in probabilities"


def test_invented_inputs_do_not_come_out_again(members: Members) -> None:
    content = resealed(members, {"inputs/0.npy": flipped(members["inputs/0.npy"], 200, 0x40)})
    verdict = verified(content)
    assert "other bytes in x.nhwc" in detail(verdict, "recomputed by host C")
    assert "other bytes in x.nhwc" in detail(verdict, "recomputed by reference")


def test_another_model_does_not_come_out_again(members: Members) -> None:
    """A weight, in the model alone."""
    verdict = verified(resealed(members, {RLX: flipped(members[RLX], len(members[RLX]) - 700, 0x20)}))
    assert not verdict.good
    assert "digits_weights.c" in detail(verdict, "generated again")
    assert "other bytes in" in detail(verdict, "recomputed by host C")


def test_c_in_a_certificate_is_never_compiled(members: Members) -> None:
    """It is compared with what is generated from the model, and only that is run."""
    evil = b'#error "compiled"\n'
    verdict = verified(resealed(members, {"bundle/digits/digits.c": evil, "bundle/rlx/rlx_crc32.c": evil}))
    assert "bundle/digits/digits.c, bundle/rlx/rlx_crc32.c" in detail(verdict, "generated again")
    held = {check.name for check in verdict.checks if check.holds}
    assert {"recomputed by host C", "recomputed by reference"} <= held


def test_another_hash_of_the_model(members: Members) -> None:
    content = resealed(members, change=lambda facts: dataclasses.replace(facts, model_hash="0" * 32))
    assert detail(verified(content), "generated again").endswith("makes: model_hash")


def test_c_of_another_version_is_not_compared(members: Members) -> None:
    def change(facts: Certificate) -> Certificate:
        return dataclasses.replace(facts, tools={**facts.tools, "rlx-edge": "9.9", "kernels": "0x0u"})

    verdict = verified(resealed(members, {"bundle/digits/digits.c": b"/* newer */\n"}, change))
    (check,) = [check for check in verdict.checks if check.name == "generated again"]
    assert check.holds is None
    assert "of another rlx-edge (9.9, kernels 0x0u)" in check.detail


def test_another_image_is_not_rebuilt_and_not_run(members: Members) -> None:
    """Only these two look at the ELF file: what it holds is what the device ran if it is built to the same bytes."""
    elf = members["build/firmware.elf"]
    weights = elf.index(members["build/firmware.bin"][20_000:20_064])
    content = resealed(members, {"build/firmware.elf": flipped(elf, weights)})
    assert verified(content).good
    verdict = verified(content, rebuild=True, rerun=True)
    assert detail(verdict, "rebuilt") == "other bytes in firmware.elf; by the same tools"
    assert "firmware is not the build's" in detail(verdict, "rerun") or "damaged" in detail(verdict, "rerun")


def test_another_compiler_is_named(members: Members) -> None:
    def change(facts: Certificate) -> Certificate:
        return dataclasses.replace(facts, tools={**facts.tools, "Arm compiler": "gcc 99"})

    built = members["build/build.json"].replace(json.loads(members["build/build.json"])["compiler"].encode(), b"gcc 99")
    content = resealed(members, {"build/link.ld": b"", "build/build.json": built}, change)
    assert "Arm compiler is 'arm-none-eabi-gcc" in detail(verified(content, rebuild=True), "rebuilt")


def test_rerun_on_a_port(made: Path, whole: bytes) -> None:
    board = load_board("mps2-an386")
    with Emulator(board, made / "build" / "firmware.elf") as emulator:
        verdict = verified(whole, port=emulator.port)
    assert verdict.good
    assert verdict.checks[-1].name == f"rerun on {emulator.port}"
    assert verdict.checks[-1].holds


def test_certificate_from_a_port(made: Path, tmp_path: Path) -> None:
    """What is behind a port cannot be seen; a board that exists in emulators only is emulated all the same."""
    board, out = load_board("mps2-an386"), tmp_path / "c.zip"
    with Emulator(board, made / "build" / "firmware.elf") as emulator:
        good("parity", made / "build", "--data", DATA, *SAMPLES, "--port", emulator.port, "--certificate", out)
    facts = read_certificate(read_file(out).members[CERTIFICATE])
    assert facts.where.emulated and "emulator" not in facts.tools
    assert not facts.layers
    assert [tensor.tensor for tensor in facts.tensors] == ["probabilities"]
    assert len(facts.not_compared) == 10 and "stem_relu" in facts.not_compared
    assert verify(read_file(out)).good


def test_a_port_that_is_not_there(whole: bytes) -> None:
    verdict = verified(whole, port="/dev/none")
    assert "/dev/none" in detail(verdict, "rerun on /dev/none")


@pytest.mark.parametrize("name", ["../../etc/passwd", "microbot"])
def test_a_board_that_is_not_known(members: Members, name: str) -> None:
    def change(facts: Certificate) -> Certificate:
        return dataclasses.replace(facts, where=dataclasses.replace(facts.where, board=name))

    built = json.dumps({**json.loads(members["build/build.json"]), "board": name}).encode()
    verdict = verified(resealed(members, {"build/build.json": built}, change), rebuild=True, rerun=True)
    assert f"unknown board {name}" in detail(verdict, "rebuilt")
    assert f"unknown board {name}" in detail(verdict, "rerun")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda facts: {**facts, "schema": "rlx-edge certificate 2"}, "is of another version"),
        (lambda facts: {**facts, "signed": True}, "unknown key signed"),
        (lambda facts: {**facts, "samples": "3"}, "samples must be a whole number"),
        (lambda facts: {**facts, "samples": True}, "samples must be a whole number"),
        (lambda facts: {**facts, "samples": 0}, "samples must be a whole number"),
        (lambda facts: {**facts, "models": ["digits", 1]}, "models must be a list of texts"),
        (lambda facts: {**facts, "tensors": {}}, "tensors must be a list of tables"),
        (lambda facts: {**facts, "tensors": [{"tensor": "x", "bytes": 1, "sha256": "x"}]}, "64 hexadecimal digits"),
        (lambda facts: {**facts, "where": 1}, "where must be a table"),
        (lambda facts: {**facts, "files": []}, "files must be a table"),
        (lambda facts: [facts], "is no JSON object"),
    ],
)
def test_facts_of_another_form(members: Members, change: Callable[[dict[str, Any]], Any], says: str) -> None:
    content = json.dumps(change(json.loads(members[CERTIFICATE]))).encode()
    assert says in found_damage(rewritten(members, content))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 200_000, b"nan"])
def test_facts_that_are_no_json(members: Members, content: bytes) -> None:
    assert "is no JSON" in found_damage(rewritten(members, content))


def test_facts_without_end_are_not_read(members: Members) -> None:
    facts = json.loads(members[CERTIFICATE])
    content = json.dumps({**facts, "models": ["m"] * (MAX_BYTES // 4)}).encode()
    assert f"at most {MAX_BYTES:,} are read" in found_damage(rewritten(members, content))


def rewritten(members: Members, content: bytes) -> bytes:
    """Other bytes as certificate.json, with their checksum."""
    checksum = f"{hashlib.sha256(content).hexdigest()}  {CERTIFICATE}\n".encode()
    return write_archive({**members, CERTIFICATE: content, CHECKSUM: checksum})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(inputs=()), "'x' of the inputs is not there for 3 samples"),
        (dict(outputs=()), "'probabilities' of the outputs is not there for 3 samples"),
    ],
)
def test_what_cannot_be_computed_again(members: Members, change: dict[str, Any], says: str) -> None:
    verdict = verified(resealed(members, change=lambda facts: dataclasses.replace(facts, **change)), rebuild=True)
    assert says in detail(verdict, "recomputed")
    assert "there is no C to build from" in detail(verdict, "rebuilt")


@pytest.mark.parametrize(
    ("models", "says"),
    [(["../digits"], "cannot name a model in C"), (["digits", "kws"], "there is no bundle/kws/kws.rlx")],
)
def test_models_that_are_not_there(members: Members, models: list[str], says: str) -> None:
    def change(facts: Certificate) -> Certificate:
        return dataclasses.replace(facts, models=tuple(models), model=models[0])

    built = json.dumps({**json.loads(members["build/build.json"]), "models": models}).encode()
    verdict = verified(resealed(members, {"build/build.json": built}, change))
    assert says in detail(verdict, "recomputed")


@pytest.mark.parametrize("at", [6, 10, 22, 60])
def test_headers_of_arrays_are_not_believed(members: Members, at: int) -> None:
    content = resealed(members, {"inputs/0.npy": flipped(members["inputs/0.npy"], at)})
    assert "of the inputs is not stored as 3 times" in detail(verified(content), "recomputed")


def test_a_model_that_is_no_model(members: Members) -> None:
    for content in (b"", members[RLX][:100], bytes(500)):
        assert "cannot be computed again" in detail(verified(resealed(members, {RLX: content})), "recomputed")


def test_a_small_model_that_asks_for_much_is_not_computed(members: Members) -> None:
    """A pad from 16 bytes to more than any board has, in a file of some hundred bytes."""
    maker = ModelMaker("large", 1)
    x = maker.input((1, 4, 4, 1))
    pad = Pad(((0, 0), (0, 20_000), (0, 20_000), (0, 0)))
    large = rlx_bytes(maker.builder.build([maker.builder.add(pad, [x], "pad", maker.quant_of(x))]))
    assert len(large) < 2000
    assert "has more than 268,435,456 bytes of tensors" in detail(
        verified(resealed(members, {RLX: large})), "recomputed"
    )


def test_a_model_with_nested_graphs_is_not_computed(members: Members) -> None:
    """A loop in a small file may never end."""
    row = TensorType((1,), DType.I8, QuantParams.per_tensor(0.5, 0))
    body = GraphBuilder("body")
    step = body.build([body.input("x", row)])
    outer = GraphBuilder("outer")
    loop = outer.add(CustomFn(step, None, None, 1), [outer.input("x", row)], "y", row.quant)
    content = resealed(members, {RLX: rlx_bytes(outer.build([loop]))})
    assert "node 1 CustomFn 'y' has nested graphs" in detail(verified(content), "recomputed")


def test_what_a_certificate_says_cannot_steer_a_terminal(members: Members, tmp_path: Path) -> None:
    def change(facts: Certificate) -> Certificate:
        where = dataclasses.replace(facts.where, title="\x1b[2J[red]x")
        return dataclasses.replace(facts, where=where, statement="\x1b[31mequal")

    path = tmp_path / "c.zip"
    path.write_bytes(resealed(members, change=change))
    done = rlx_edge("verify", path)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout and "[red]x" in done.stdout
    assert done.stdout.splitlines()[-1] == "NOT good: consistent"
