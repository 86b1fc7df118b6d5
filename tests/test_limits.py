"""`rlx-edge check`: strict reading of the file, figures against limits, exit codes, JUnit XML."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from command import good, refused, rlx_edge

from rlx_edge.device.boards import load_board
from rlx_edge.errors import EdgeError
from rlx_edge.limits.file import read_check_file
from rlx_edge.limits.finding import Bound, Finding, apart
from rlx_edge.report.junit import junit_xml
from rlx_edge.resources import digits_dir

FILES = ("digits.onnx", "digits_calibration.npz", "digits_test.npz")
MODEL = '[model]\nfile = "digits.onnx"\n[quantize]\ndata = "digits_calibration.npz"\n'
DATA = '[data]\nfile = "digits_test.npz"\n'
INT8 = '[model]\nfile = "digits.rlx"\n'
BOARD = "[boards.mps2-an386]\nflash_bytes = 30_000\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits example with a quantized model."""
    made = tmp_path_factory.mktemp("limits")
    for name in FILES:
        shutil.copy(digits_dir() / name, made)
    good("quantize", FILES[0], "--data", FILES[1], "-o", "digits.rlx", cwd=made)
    return made


def written(folder: Path, text: str) -> Path:
    path = folder / "rlx-edge.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_reads_as_documented() -> None:
    """tests/test_docs.py runs it, as docs/check.md says."""
    found = read_check_file(digits_dir() / "rlx-edge.toml")
    assert found.name == "digits"
    assert found.limits.keys() == {"top1", "top1_loss"}
    (board,) = found.boards
    assert board.limits.keys() == {"flash_bytes", "ram_bytes", "stack_bytes", "instructions"}
    assert board.parity == "0:4" and board.layers


def test_the_documented_keys_are_those_that_are_read(folder: Path) -> None:
    """The page's file, read as it stands and with its commented keys."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "check.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    found = read_check_file(written(folder, text))
    assert found.calibration is not None and found.data is not None
    assert found.data.samples == "0:500" and found.boards[0].options.optimize == "balanced"
    quantized = text.replace('file = "digits.onnx" ', 'file = "digits.rlx" ').replace("# float", "float")
    start, end = quantized.index("[quantize]"), quantized.index("[data]")
    found = read_check_file(
        written(folder, (quantized[:start] + quantized[end:]).replace("# preprocess", "preprocess"))
    )
    assert found.float_model == folder / "digits.onnx"
    assert found.data is not None and found.data.preprocess == "scale=1/255"


def test_limits_that_are_kept(folder: Path) -> None:
    text = (
        '[model]\nfile = "digits.rlx"\nfloat = "digits.onnx"\n'
        + DATA
        + "[limits]\ntop1 = 0.96\ntop1_loss = 0.02\n"
        + '[boards.microbit]\nflash_bytes = 40_000\nram_bytes = 8_000\nparity = "0:1"\n'
    )
    place = folder / "elsewhere"
    place.mkdir()
    facts = json.loads(good("check", written(folder, text), "--json", "--junit", "limits.xml", cwd=place))
    assert facts["kept"] is True
    names = ["top1", "top1_loss", "flash_bytes", "ram_bytes", "differing_bytes"]
    assert [limit["name"] for limit in facts["limits"]] == names
    assert [limit["bound"] for limit in facts["limits"]] == ["at least", *["at most"] * 4]
    for limit in facts["limits"]:
        apart_by = limit["figure"] - limit["limit"]
        assert limit["margin"] == pytest.approx(apart_by if limit["bound"] == "at least" else -apart_by)
        assert limit["kept"]
    root = Xml.fromstring((place / "limits.xml").read_bytes())
    assert [case.get("name") for case in root.iter("testcase")] == names
    assert [suite.get("name") for suite in root] == ["model", "microbit"]
    assert not list(root.iter("failure")) and not list(root.iter("error"))


def test_limits_that_are_broken(folder: Path) -> None:
    """Each with its figure; a board that cannot be built for does not keep others from being measured."""
    text = (
        INT8
        + DATA
        + "[limits]\ntop1 = 0.999\n"
        + '[boards.mps2-an385]\nflash_bytes = 40_000\nparity = "0:1"\nram_budget = 1\n'
        + "[boards.mps2-an386]\nflash_bytes = 10_000\nram_bytes = 100\nstack_bytes = 10\ninstructions = 1000\n"
    )
    done = rlx_edge("check", written(folder, text), "--junit", folder / "limits.xml")
    assert done.returncode == 1
    assert "7 of 7 limits not kept" in done.stdout
    assert done.stdout.count("BROKEN") == 5 and done.stdout.count("NOT MEASURED") == 2
    assert "model: top1 is 0.97" in done.stdout
    assert "mps2-an386: flash_bytes is 20," in done.stdout
    assert "must be at most 10,000 (off by 10," in done.stdout
    (told,) = {line.partition("was not measured: ")[2] for line in done.stdout.splitlines() if "was not" in line}
    assert "budget" in told
    root = Xml.fromstring((folder / "limits.xml").read_bytes())
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("7", "5", "2")
    for case in root.iter("testcase"):
        (outcome,) = case
        assert outcome.get("message") == outcome.text
        assert f"{case.get('name')} " in (outcome.text or "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[model\n", r"rlx-edge.toml: is not valid TOML: "),
        ("x = " + "[" * 100_000, r"rlx-edge.toml: is (nested too deep|not valid TOML: .*)"),
        ("", r"rlx-edge.toml: the key model is missing"),
        ("model = 3\n", r"rlx-edge.toml: model must be a table, found 3"),
        ("[model]\n", r"rlx-edge.toml: \[model\]: the key file is missing"),
        ("[model]\nfile = 1\n" + BOARD, r"\[model\]: file must be a text, found 1"),
        ('[model]\nfile = "no.rlx"\n' + BOARD, r"file = 'no.rlx': there is no .*/no.rlx"),
        ('[model]\nfile = "a\\u0000b"\n' + BOARD, r"file = 'a\\x00b': there is no "),
        (MODEL, r"holds no limit: add a table \[limits\] or \[boards.NAME\]"),
        (MODEL + "[limits]\n" + DATA, r"holds no limit"),
        (MODEL + "[limits]\ntop1 = 0.9\n", r"\[data\] is missing: metrics and parity need samples"),
        (MODEL + DATA + "[limits]\ntop2 = 0.9\n", r"\[limits\]: unknown key top2; did you mean top1\?"),
        (MODEL + DATA + "[limits]\ntop1 = 97\n", r"\[limits\]: top1 must be a number from 0 to 1, found 97"),
        (MODEL + DATA + "[limits]\ntop1 = nan\n", r"top1 must be a number from 0 to 1, found nan"),
        (MODEL + DATA + "[limits]\ntop1 = true\n", r"top1 must be a number from 0 to 1, found True"),
        (MODEL + DATA + '[limits]\ntop1 = "0.9"\n', r"top1 must be a number from 0 to 1, found '0.9'"),
        (MODEL + "[bords.x]\n", r"rlx-edge.toml: unknown key bords; did you mean boards\?"),
        (MODEL + "[boards]\n", r"\[boards\] is empty"),
        (MODEL + "[boards]\nmicrobit = 1\n", r"\[boards\]: microbit must be a table, found 1"),
        (MODEL + "[boards.microbot]\n", r"\[boards.microbot\]: unknown board microbot \(did you mean microbit\?\)"),
        (MODEL + '[boards."../../etc"]\n', r"unknown board ../../etc; known boards"),
        (MODEL + "[boards.microbit]\n", r"\[boards.microbit\]: holds no limit; there are flash_bytes, ram_bytes"),
        (
            MODEL + BOARD + "ram = 1\n",
            r"\[boards\]: \[mps2-an386\]: unknown key ram; known keys: flash_budget, flash_bytes",
        ),
        (MODEL + BOARD + "ram_bytes = -1\n", r"ram_bytes must be a whole number from 0 to"),
        (MODEL + BOARD + "ram_bytes = 1.5\n", r"ram_bytes must be a whole number from 0 to .*, found 1.5"),
        (MODEL + BOARD + "layers = true\n", r'layers says what parity compares: add parity = "0:8", say'),
        (MODEL + BOARD + 'parity = "all"\n' + DATA, r"samples 'all': write start:stop:step, as in 0:256:2"),
        (MODEL + BOARD + 'parity = "0:4"\n', r"\[data\] is missing"),
        (MODEL + BOARD + 'optimize = "fast"\n', r"optimize must be one of balanced, size, speed, found 'fast'"),
        (MODEL + 'effort = "worst"\n' + BOARD, r"effort must be one of balanced, best, fast, found 'worst'"),
        (MODEL.replace("data =", "file ="), r"\[quantize\]: the key data is missing"),
        (MODEL + DATA + 'preprocess = "half"\n' + BOARD, r"preprocess 'half': write it as in"),
        (MODEL.replace("[q", 'name = "int"\n[q') + BOARD, r"'int' cannot name a model in C"),
        (MODEL.replace("[q", 'float = "digits.onnx"\n[q') + BOARD, r"float is there for nothing"),
        (INT8 + DATA + "[limits]\nauc_loss = 1\n", r"auc_loss needs the float model"),
    ],
)
def test_a_bad_file_is_refused(folder: Path, text: str, says: str) -> None:
    with pytest.raises(EdgeError, match=says) as refusal:
        read_check_file(written(folder, text))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("limit", ['parity = "0:1"', "stack_bytes = 1", "instructions = 1"])
def test_a_board_without_emulator_has_limits_of_memory_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    silicon = replace(load_board("microbit"), emulation=None)
    monkeypatch.setattr("rlx_edge.limits.file.load_board", lambda name: silicon)
    memory = MODEL + DATA + "[boards.microbit]\nflash_bytes = 1\nram_bytes = 1\n"
    assert read_check_file(written(folder, memory)).boards[0].board is silicon
    with pytest.raises(EdgeError, match=rf"no emulator runs this board, so {limit.split()[0]} cannot be measured here"):
        read_check_file(written(folder, memory + limit + "\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MODEL.replace("digits.onnx", "digits.rlx") + BOARD, "is quantized already: remove the table [quantize]"),
        ('[model]\nfile = "digits.onnx"\n' + BOARD, "is a float model: add a table [quantize] with data = ..."),
        (INT8 + DATA + BOARD + 'parity = "900:"\n', "of which none were picked"),
        (INT8 + DATA + 'labels = "z"\n[limits]\ntop1 = 0.9\n', "no labels 'z'"),
        ('[model]\nfile = "digits_test.npz"\n' + BOARD, "digits_test.npz"),
    ],
)
def test_what_cannot_be_measured_exits_with_2(folder: Path, text: str, says: str) -> None:
    assert says in refused("check", written(folder, text))


def test_places_are_checked_before_the_work(folder: Path, tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused("check", cwd=tmp_path)
    assert "Is a directory" in refused("check", tmp_path)
    file = written(folder, MODEL + BOARD)
    assert "make it first" in refused("check", file, "--junit", tmp_path / "none" / "limits.xml")


@pytest.mark.parametrize(
    ("bound", "limit", "figure", "margin", "kept"),
    [
        (Bound.AT_MOST, 100, 100, 0, True),
        (Bound.AT_MOST, 100, 101, -1, False),
        (Bound.AT_LEAST, 0.97, 485 / 500, 0, True),
        (Bound.AT_LEAST, 0.97, 484 / 500, -0.002, False),
        (Bound.AT_MOST, 0.002, apart(0.976, 0.974), 0, True),
        (Bound.AT_MOST, 1, None, None, False),
    ],
)
def test_the_limit_itself_is_kept(
    bound: Bound, limit: float, figure: float | None, margin: float | None, kept: bool
) -> None:
    finding = Finding("model", "x", bound, limit, figure)
    assert (finding.margin, finding.kept) == (margin, kept)


def test_junit_escapes_whatever_names_hold() -> None:
    """Markup, quotes, controls that XML forbids even as references, a lone surrogate, letters of all kinds."""
    note = "<a href='x'>&amp;\"]]> \0\x1b[31m\ud800\uffff ünïcode \U0001f600\nsecond line"
    findings = (
        Finding("a<b&c", 'x"y', Bound.AT_MOST, 1_234_567, 1_234_568, note, 1.5),
        Finding("a<b&c", "z", Bound.AT_MOST, 1, None, note, 0.25),
        Finding("model", "top1", Bound.AT_LEAST, 0.5, 0.75, note),
    )
    root = Xml.fromstring(junit_xml(findings))
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "3", "1", "1")
    assert root.get("time") == "1.750"
    first, second = root
    assert (first.get("name"), second.get("name")) == ("a<b&c", "model")
    broken, lost = first
    assert broken.get("classname") == "rlx-edge.a<b&c" and broken.get("name") == 'x"y'
    shown = note.replace("\0", "?").replace("\x1b", "?").replace("\ud800", "?").replace("\uffff", "?")
    (failure,) = broken
    assert failure.tag == "failure"
    assert failure.text == f'a<b&c: x"y is 1,234,568, must be at most 1,234,567 (off by 1); {shown}'
    (error,) = lost
    assert error.tag == "error" and error.text == f"a<b&c: z (at most 1) was not measured: {shown}"
    ((passed,),) = second
    assert passed.tag == "system-out" and passed.text == f"0.75, at least 0.5, margin 0.25; {shown}"


def test_junit_keeps_to_the_schema_that_jenkins_publishes() -> None:
    """Its attributes, element by element (jenkins-junit.xsd of the xunit plugin)."""
    allowed = {
        "testsuites": {"name", "time", "tests", "failures", "disabled", "errors"},
        "testsuite": {"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname"},
        "testcase": {"name", "assertions", "time", "classname", "status"},
        "failure": {"type", "message"},
        "error": {"type", "message"},
        "system-out": set(),
    }
    findings = [Finding("model", "x", Bound.AT_MOST, 1, figure) for figure in (0, 2, None)]
    elements = list(Xml.fromstring(junit_xml(findings)).iter())
    assert {element.tag for element in elements} == allowed.keys()
    for element in elements:
        assert set(element.keys()) <= allowed[element.tag]
