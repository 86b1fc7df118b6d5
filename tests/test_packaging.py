"""The wheel: what is in it, and that it works from a fresh virtual environment in another folder."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from command import good

ROOT = Path(__file__).resolve().parent.parent
DATA = "rlx_edge/_data/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a source distribution, as `python -m build` does; setuptools is that of this environment."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_wheel_has_everything(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = {"firmware": (".c", ".h"), "boards": (".toml",), "examples/digits": (".onnx", ".npz", ".toml")}
    for folder, suffixes in kinds.items():
        files = {path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes}
        assert files
        assert {DATA + path.relative_to(ROOT).as_posix() for path in files} <= names
    package = {path for path in (ROOT / "rlx_edge").rglob("*") if path.suffix in (".py", ".j2", ".typed")}
    assert {path.relative_to(ROOT).as_posix() for path in package} <= names
    assert {name.rpartition("/")[2] for name in names} >= {"LICENSE", "LICENSE-MIT", "LICENSE-APACHE"}
    assert not [name for name in names if name.startswith(("tests", "examples", "firmware", "boards"))]


def test_demo_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """The wheel's own files are used; its dependencies are those of this environment, so nothing is downloaded."""
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    here = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    (packages / "dependencies.pth").write_text("\n".join(here))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = "import rlx_edge.resources as r; print(r.firmware_dir(), r.boards_dir(), r.digits_dir())"
    found = subprocess.run([python, "-c", where], cwd=elsewhere, check=True, capture_output=True, text=True).stdout
    assert found.split() == [str(packages / DATA / name) for name in ("firmware", "boards", "examples/digits")]
    shown = good("demo", cwd=elsewhere, command=python.with_name("rlx-edge"))
    assert "\nexact: " in shown
    assert list(elsewhere.iterdir()) == []


def test_dependencies_are_declared() -> None:
    """Every package that rlx_edge imports is named in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["images"], *extras["plots"], *extras["torch"]]
    declared = {_normal(re.split(r"[<>=!~;\[ ]", line)[0]) for line in lines}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "rlx_edge").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _imports(node)
    }
    providers = packages_distributions()
    foreign = imported - set(sys.stdlib_module_names) - {"rlx_edge"}
    lacking = {name for name in foreign if not declared & {_normal(d) for d in providers.get(name, [name])}}
    assert lacking == set()


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
