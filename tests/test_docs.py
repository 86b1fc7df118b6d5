"""Every command in the README and the docs: it exists, its options are right, and where it can run here, it runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import typer
from command import good

from rlx_edge.cli import app
from rlx_edge.formats.onnx_ops import OPS
from rlx_edge.formats.onnx_quant import DYNAMIC
from rlx_edge.formats.tflite import OPERATORS
from rlx_edge.resources import digits_dir

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
]
COMMAND = "rlx-edge"
TRAINING = (COMMAND, "finetune")
"""It needs PyTorch: tests/test_qat_docs.py runs it."""
PLACEHOLDER = re.compile(r"[A-Z]{2,}|\.\.\.")
"""A word in capitals stands for something, so the command is not run."""


@dataclass(frozen=True)
class Command:
    """A line of a code block, without its prompt and comment. `shown`: it is part of a transcript of the demo."""

    page: Path
    line: int
    words: tuple[str, ...]
    shown: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {shlex.join(self.words)}"

    @property
    def runs_here(self) -> bool:
        """It names no placeholder and no serial port, needs no extra, and is not run as part of the demo."""
        if self.words[:2] == TRAINING and find_spec("torch") is None:
            return False
        if "--ops" in self.words:  # tests/test_custom_ops.py runs it.
            return False
        return not self.shown and "--port" not in self.words and not any(map(PLACEHOLDER.search, self.words))


def code_blocks(page: Path) -> list[list[tuple[int, str]]]:
    """Fenced and indented code blocks, each as numbered lines without prompt."""
    blocks: list[list[tuple[int, str]]] = [[]]
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
            blocks.append([])
        elif fenced or line.startswith("    "):
            blocks[-1].append((number, line.strip().removeprefix("$ ")))
        else:
            blocks.append([])
    return [block for block in blocks if block]


def commands(program: str) -> list[Command]:
    """Commands of a program in code blocks, on all pages."""
    return [
        Command(page, number, tuple(shlex.split(line, comments=True)), shown=block[0][1] == "make demo")
        for page in PAGES
        for block in code_blocks(page)
        for number, line in block
        if line.split(" ")[0] == program
    ]


def test_commands_are_found() -> None:
    assert len(commands(COMMAND)) > 5
    assert len(commands("make")) > 1


@pytest.mark.parametrize("command", commands(COMMAND), ids=str)
def test_options_exist(command: Command) -> None:
    """The words parse as the command's own parser takes them; nothing is run."""
    group = typer.main.get_command(app)
    with group.make_context(COMMAND, list(command.words[1:])) as context:
        name, found, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        found.make_context(name, rest, parent=context)


def test_inline_commands_exist() -> None:
    """`rlx-edge NAME` in a sentence names a command."""
    known = typer.main.get_command(app).commands
    for page in PAGES:
        for name in re.findall(rf"`{COMMAND} ([a-z-]+)", page.read_text(encoding="utf-8")):
            assert name in known, f"{page.name}: {COMMAND} {name}"


@pytest.mark.parametrize("command", commands("make"), ids=str)
def test_make_targets_exist(command: Command) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in command.words[1:]:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of a demo."""
    folder = tmp_path_factory.mktemp("demo")
    return folder / "build" / "demo", good("demo", "--out", "build/demo", cwd=folder)


def test_commands_of_the_demo_run(demo: tuple[Path, str]) -> None:
    """What the demo prints after $ works in its folder."""
    folder, shown = demo
    lines = re.findall(r"^ *\$ (.*)$", shown, re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        good(*shlex.split(line)[1:], cwd=folder)


def test_readme_shows_the_demo_as_it_is(demo: tuple[Path, str]) -> None:
    """Every line of the transcript but `[...]` is in the demo's output; figures may differ with the compiler."""
    (transcript,) = (b[1:] for b in code_blocks(ROOT / "README.md") if b[0][1] == "make demo" and len(b) > 2)
    shown = {_without_figures(line.strip().removeprefix("$ ")) for line in demo[1].splitlines()}
    for _, line in transcript:
        assert line == "[...]" or _without_figures(line) in shown, line


def _without_figures(line: str) -> str:
    return re.sub(r"[ ─━]+", " ", re.sub(r"[\d.,]*\d", "N", line)).strip()


RUNNABLE = [command for command in commands(COMMAND) if command.runs_here]


@pytest.mark.parametrize("page", sorted({command.page for command in RUNNABLE}), ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_run(page: Path, tmp_path: Path) -> None:
    """A page's commands run one after the other in a folder with the digits example."""
    prepare(tmp_path)
    for command in RUNNABLE:
        if command.page == page:
            good(*command.words[1:], cwd=tmp_path)


def prepare(folder: Path) -> None:
    """The digits example, quantized, as pages take it from each other."""
    lay_out(folder)
    (folder / "digits.rlx").write_bytes(quantized_digits())


@cache
def quantized_digits() -> bytes:
    with TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder)
        good("quantize", "digits.onnx", "--data", "digits_calibration.npz", "-o", "digits.rlx", cwd=folder)
        return (folder / "digits.rlx").read_bytes()


def lay_out(folder: Path) -> None:
    """The digits example, as a checkout has it and also beside."""
    for place in (folder, folder / "examples" / "digits"):
        place.mkdir(parents=True, exist_ok=True)
        for file in (*digits_dir().glob("digits*"), *digits_dir().glob("*.toml")):
            (place / file.name).write_bytes(file.read_bytes())


@pytest.mark.parametrize(
    ("title", "imported"),
    [("ONNX", [op for op in OPS if "." not in op and op not in DYNAMIC]), ("TFLite", list(OPERATORS))],
)
def test_models_page_lists_what_is_imported(title: str, imported: list[str]) -> None:
    """Each op of the importer stands in one row of the table, and no other does."""
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {title}$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    assert sorted(op for row in rows for op in re.findall(r"\w+", row)) == sorted(imported)


def run_example(page: str, folder: Path) -> list[str]:
    """The lines that the page's Python example prints."""
    prepare(folder)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = subprocess.run([sys.executable, "-c", example], cwd=folder, capture_output=True, text=True, check=True)
    return shown.stdout.splitlines()


def test_python_example_runs(tmp_path: Path) -> None:
    (line,) = run_example("quantization.md", tmp_path)
    sqnr_db, agreement = map(float, line.split())
    assert sqnr_db > 30
    assert agreement > 0.95


def test_python_example_of_few_bits_runs(tmp_path: Path) -> None:
    by_hand, *front, rules = run_example("few-bits.md", tmp_path)
    assert float(by_hand) > 25
    flash, sqnr_db = zip(*(map(float, line.split()[:2]) for line in front), strict=True)
    assert len(front) >= 2 and list(flash) == sorted(flash) and list(sqnr_db) == sorted(sqnr_db)
    assert any(value <= 19_000 for value in flash) and rules.count("LayerRule(") == 5
    assert (tmp_path / "auto.rlx").exists()


def test_own_firmware_compiles_as_written(tmp_path: Path) -> None:
    """The page's compiler command as it stands, and again with the step hook, which is then all that is missing."""
    page = ROOT / "docs" / "own-firmware.md"
    prepare(tmp_path)
    for folder in ("firmware", "examples/own_firmware"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    good(
        "generate",
        "digits.rlx",
        "--name",
        "digits",
        "--target",
        "cortex-m4",
        "--with-link",
        "-o",
        "bundle",
        cwd=tmp_path,
    )
    (header,) = re.findall(r"^```c\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "my_hook.h").write_text(header, encoding="utf-8")
    text = "\n".join(line for block in code_blocks(page) for _, line in block)
    (command,) = re.findall(r"^arm-none-eabi-gcc (?:.*\\\n)*.*$", text, re.MULTILINE)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    hooked = subprocess.run(
        f"{command} -DRLX_STEP_HOOK=my_hook -include my_hook.h",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "undefined reference to `my_hook'" in hooked.stderr
    assert re.findall(r".*error:.*", hooked.stderr) == ["collect2: error: ld returned 1 exit status"]
