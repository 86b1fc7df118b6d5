"""Writes docs/ops.md: what rlx_edge can do with each kind of op, read off its own tables.

`make ops` runs it when a kind, an importer or a target has changed; a test compares the page.
"""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import rlx_edge
from rlx_edge.cgen.target import PORTABLE_OPS
from rlx_edge.ir import DType
from rlx_edge.ir.ops import BY_KIND, Declared, Dequantize, Op, Quantize
from rlx_edge.ir.ops.leaf import Constant, Input, Param
from rlx_edge.ir.vocabulary import all_kinds
from rlx_edge.passes import decompose, unfuse
from rlx_edge.quant.lower import LOWER
from rlx_edge.reference.further import functions, functions_on_codes
from rlx_edge.reference.run import FLOAT, INT8

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ops.md"
PACKAGE = Path(rlx_edge.__file__).parent

HEAD = """# The kinds of ops, and what can be done with each

A graph can hold every kind of the RLX vocabulary: it is checked, printed, parsed and saved, with its nested graphs.
{totals}

- *type*: `inferred` from the operands and attributes, or `declared` where a node is made, because these do not say it.
- *reference*: what the reference executes, `float` (and integers and bools that stand for themselves) or `int8` (codes
  that stand for real values). Other kinds are refused by name.
- *imported from*: which importers make it ([models.md](models.md)).
- *quantized*: `quantize` gives it an int8 form; *made of others*: passes replace it by other kinds first, without
  changing a bit.
- *targets*: the C for every target runs it on these types.

Kinds of the first part are in `rlx_edge.ir.ops`; the others are loaded when a graph has one. What ours have beyond the
vocabulary's is in one table, `rlx_edge/ir/vocabulary.py`. This page is written by `scripts/ops_page.py`.
"""


COLUMNS = ("| kind | type | reference | imported from | quantized | targets |", "|---|---|---|---|---|---|")


@cache
def made_by(pattern: str) -> frozenset[str]:
    """Names that modules of rlx_edge/formats read, but for type checks and annotations: the ops they make are there."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted((PACKAGE / "formats").glob(pattern)))
    return frozenset(name for tree in trees for name in _read(tree))


def _read(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            children = value if isinstance(value, list) else [value]
            for child in children:
                if isinstance(child, ast.AST):
                    yield from _read(child)


def reference(kind: type[Op]) -> str:
    if issubclass(kind, Input | Param | Constant):
        return "float, int8"
    on_float = kind in FLOAT or kind in functions()
    on_int8 = kind in INT8 or kind in functions_on_codes()
    return ", ".join(name for name, has in (("float", on_float), ("int8", on_int8)) if has)


def importers(kind: type[Op]) -> str:
    sources = {"ONNX": "onnx*.py", "TFLite": "tflite*.py"}
    return ", ".join(name for name, pattern in sources.items() if kind.__name__ in made_by(pattern))


def quantized(kind: type[Op]) -> str:
    if kind in (Constant, Param):
        return "yes"
    if kind in LOWER or kind in (Quantize, Dequantize):
        return "yes"
    return "made of others" if kind in unfuse.RULES or kind in decompose.RULES else ""


def targets(kind: type[Op]) -> str:
    if kind in (Input, Param, Constant):
        return "int8, f32"
    support = PORTABLE_OPS.get(kind)
    if support is None:
        return (
            "made of others"
            if kind in decompose.RULES or (kind in functions_on_codes() and kind in unfuse.RULES)
            else ""
        )
    return ", ".join(name for dtype, name in ((DType.I8, "int8"), (DType.F32, "f32")) if dtype in support.dtypes)


def row(kind: type[Op]) -> str:
    typed = "declared" if issubclass(kind, Declared) else "inferred"
    cells = (f"`{kind.__name__}`", typed, reference(kind), importers(kind), quantized(kind), targets(kind))
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def totals() -> str:
    kinds = list(all_kinds().values())
    count = {
        "declared": len(kinds),
        "inferred": sum(not issubclass(kind, Declared) for kind in kinds),
        "executed": sum(bool(reference(kind)) for kind in kinds),
        "on int8": sum("int8" in reference(kind) for kind in kinds),
        "targets": sum(bool(targets(kind)) for kind in kinds),
    }
    return (
        f"All {count['declared']} kinds are declared, the types of {count['inferred']} inferred;\n"
        f"{count['executed']} are executed by the reference, {count['on int8']} of them on int8; "
        f"targets run {count['targets']}."
    )


def page() -> str:
    families: dict[str, list[type[Op]]] = defaultdict(list)
    for kind in all_kinds().values():
        families[kind.__module__].append(kind)
    lines = [HEAD.format(totals=totals())]
    for module in sorted(families, key=lambda name: families[name][0].__name__ not in BY_KIND):
        title = (inspect.getdoc(import_module(module)) or module).splitlines()[0].rstrip(".")
        lines += [
            f"## {title}",
            "",
            "| kind | type | reference | imported from | quantized | targets |",
            "|---|---|---|---|---|---|",
        ]
        lines += [*map(row, families[module]), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
