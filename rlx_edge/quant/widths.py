"""How many bits the weights of each layer get, and how they are rounded: rules by pattern; the last that fits counts.

A recipe file is TOML:

    [layers]
    "*" = 4
    ":first" = 8
    ":depthwise" = { bits = 4, method = "mse" }
    "block_3*" = { bits = 2 }
    ":dense" = { bits = 4, scales = "tensor" }

A pattern is a layer's name, with * and ? as in a shell, or a kind: see KINDS.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from json import dumps
from pathlib import Path

from rlx_edge.errors import EdgeError
from rlx_edge.ir.graph import brief
from rlx_edge.ir.ops import Conv, MatMul
from rlx_edge.passes.fuse import Fusion
from rlx_edge.quant.schemes import WEIGHT_MAX

NEAREST, MSE, ADAPTIVE, GPTQ = "nearest", "mse", "adaptive", "gptq"
METHODS: Mapping[str, str] = {
    NEAREST: "largest magnitude is the largest code, rounding to nearest",
    MSE: "the scale with the least squared error of the weights, rounding to nearest",
    ADAPTIVE: "coordinate descent on the layer's output error, scales as nearest has them",
    GPTQ: "scale, codes and compensation for the layer's output error (quant/compensate.py)",
}


PER_CHANNEL, PER_TENSOR = "channel", "tensor"


@dataclass(frozen=True)
class LayerRule:
    """Bits, method and scales for the layers that a pattern matches.

    method None: gptq below 8 bits, the effort's at 8. scales: one a `channel`, or one for the `tensor`, which saves its
    multipliers. Raises EdgeError for bits, a method or scales that do not exist.
    """

    pattern: str
    bits: int
    method: str | None = None
    scales: str = PER_CHANNEL

    def __post_init__(self) -> None:
        if self.bits not in WEIGHT_MAX:
            raise EdgeError(f"weights of {self.bits} bits for {self.pattern!r}; there are {_listed(WEIGHT_MAX)}")
        if self.method is not None and self.method not in METHODS:
            raise EdgeError(f"no method {self.method!r} for {self.pattern!r}; there are {_listed(METHODS)}")
        if self.scales not in (PER_CHANNEL, PER_TENSOR):
            raise EdgeError(f"no scales {self.scales!r} for {self.pattern!r}; there are {PER_CHANNEL}, {PER_TENSOR}")


@dataclass(frozen=True)
class LayerFacts:
    """What patterns look at."""

    fusion: Fusion
    first: bool
    last: bool


KINDS: Mapping[str, Callable[[LayerFacts], bool]] = {
    ":conv": lambda layer: isinstance(layer.fusion.anchor.op, Conv) and layer.fusion.anchor.op.groups == 1,
    ":depthwise": lambda layer: isinstance(layer.fusion.anchor.op, Conv) and layer.fusion.anchor.op.groups > 1,
    ":dense": lambda layer: isinstance(layer.fusion.anchor.op, MatMul),
    ":first": lambda layer: layer.first,
    ":last": lambda layer: layer.last,
}
"""Patterns that name a kind of layer."""


def everywhere(bits: int, method: str | None = None) -> tuple[LayerRule, ...]:
    """The same for every layer."""
    return (LayerRule("*", bits, method),)


MOST_DIGITS = 9
"""Of a number of bits; what is longer can only be a file's name."""


def read_rules(text: str) -> tuple[LayerRule, ...]:
    """Rules from `--weights`: a number of bits, or a recipe file. Raises EdgeError for anything else."""
    if not text:
        raise EdgeError(f"--weights: give a number of bits ({_listed(WEIGHT_MAX)}), a recipe file, or 'auto'")
    if text.isdecimal() and len(text) <= MOST_DIGITS:
        return everywhere(int(text))
    path = Path(text)
    try:
        return _rules(path, tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise EdgeError(
            f"--weights {text}: no such file, and no number of bits ({_listed(WEIGHT_MAX)}) or 'auto'"
        ) from None
    except RecursionError:
        raise EdgeError(f"{path}: not a readable recipe: it is nested too deeply") from None
    except (OSError, ValueError) as error:  # Of a number with thousands of digits, a plain ValueError.
        raise EdgeError(f"{path}: not a readable recipe: {error}") from None


def _rules(path: Path, document: Mapping[str, object]) -> tuple[LayerRule, ...]:
    """Those of a recipe file's contents."""
    layers = document.get("layers")
    if not isinstance(layers, dict) or not layers or set(document) != {"layers"}:
        raise EdgeError(f'{path}: a recipe is a table [layers] with lines such as "*" = 4 (docs/few-bits.md)')
    return tuple(_rule(path, pattern, value) for pattern, value in layers.items())


def recipe_text(rules: Iterable[LayerRule], about: str) -> str:
    """A recipe file of rules that give bits alone; `about` goes above them as a comment, a line."""
    lines = [f"# {about}", "[layers]", *(f"{_toml(rule.pattern)} = {rule.bits}" for rule in rules)]
    return "\n".join(lines) + "\n"


def _toml(pattern: str) -> str:
    """A JSON string is one of TOML but for DEL, and for characters beyond 16 bits, which JSON escapes as two halves. A
    half alone, which no file can hold, becomes the pattern of any character."""
    text = "".join("?" if "\ud800" <= c <= "\udfff" else c for c in pattern)
    return dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_FIELDS: Mapping[str, Sequence[str]] = {"bits": (), "method": tuple(METHODS), "scales": (PER_CHANNEL, PER_TENSOR)}
"""Of a line of a recipe file; with the names that a field takes."""


def _rule(path: Path, pattern: str, value: object) -> LayerRule:
    given = {"bits": value} if type(value) is int else value
    if not isinstance(given, dict) or type(given.get("bits")) is not int:
        raise EdgeError(f'{path}: {pattern!r} should be bits, or {{ bits = 4, method = "gptq" }}, not {value!r}')
    unknown = sorted(set(given) - set(_FIELDS))
    if unknown:
        raise EdgeError(f"{path}: {pattern!r} has {_listed(map(repr, unknown))}; there are {_listed(_FIELDS)}")
    for name, known in _FIELDS.items():
        if known and not isinstance(given.get(name, ""), str):
            raise EdgeError(f"{path}: {name} of {pattern!r} is one of {_listed(known)}, not {given[name]!r}")
    if pattern.startswith(":") and pattern not in KINDS:
        raise EdgeError(f"{path}: no kind {pattern!r}; there are {_listed(KINDS)}")
    try:
        return LayerRule(pattern, **given)
    except EdgeError as error:
        raise EdgeError(f"{path}: {error}") from None


def rules_of(fusions: Mapping[int, Fusion], rules: Sequence[LayerRule]) -> dict[int, LayerRule]:
    """The rule of each layer with weights, by the id of its fusion's last node; 8 bits where none matches.

    Raises EdgeError for a name that matches no layer, with the layers that there are; a kind may be missing.
    """
    layers = sorted((f for f in fusions.values() if isinstance(f.anchor.op, Conv | MatMul)), key=lambda f: f.last.id)
    facts = [LayerFacts(f, f is layers[0], f is layers[-1]) for f in layers]
    found = {f.last.id: LayerRule("*", 8) for f in layers}
    for rule in rules:
        matching = [layer.fusion.last.id for layer in facts if matches(rule.pattern, layer)]
        if not matching and rule.pattern not in KINDS and rule.pattern != "*":
            names = _listed(brief(fusion.last.name) for fusion in layers)
            raise EdgeError(f"the pattern {rule.pattern!r} matches no layer; there are {names}")
        found |= dict.fromkeys(matching, rule)
    return found


def matches(pattern: str, layer: LayerFacts) -> bool:
    """Whether a pattern means a layer: by kind, or by the name of its result or of its convolution or product."""
    if pattern in KINDS:
        return KINDS[pattern](layer)
    full = (layer.fusion.last.name, layer.fusion.anchor.name)
    return any(name == pattern or fnmatchcase(name, pattern) for name in (*full, *map(brief, full)))


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
