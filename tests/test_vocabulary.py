"""The kinds, compared with the vocabulary's file in both directions: nothing is missing, and what is ours is said."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rust_vocabulary import Template, Vocabulary, split, template

from rlx_edge.ir import Graph
from rlx_edge.ir.ops import EMA, Fixed, Op, PerBatch, QuantScheme, SchemeKind
from rlx_edge.ir.ops.attributes import Codebook, MaskKind
from rlx_edge.ir.ops.rust_text import Shown
from rlx_edge.ir.vocabulary import DIFFERENT, OURS, all_kinds

FILE = Path(__file__).resolve().parents[2] / "shared" / "reference" / "rlx_ir_op.rs.txt"

if not FILE.exists():
    pytest.skip("no ../shared/reference/rlx_ir_op.rs.txt beside the repository", allow_module_level=True)

RENAMED = {"Activation": "ActivationFn", "ChainOperand": "Source"}
"""Our enums of another name: classes of ops have the vocabulary's."""

NO_ENUM = {"OpKind": "the kinds", "Arity": "ir.ops.arity", "ChainStep": "an op", "TransformStep": "an op"}
"""The vocabulary's enums that are no enum here, and what they are."""

PRIMITIVES = {
    **dict.fromkeys(("usize", "u8", "u32", "u64", "i32", "i64"), "int"),
    **{"f32": "float", "bool": "bool", "String": "str", "Vec<u8>": "bytes", "Box<crate::Graph>": "Graph"},
    **{"Activation": "ActivationFn", "TransformStep": "ChainStep"},
}
"""Our types of fields, by the vocabulary's."""


@cache
def vocabulary() -> Vocabulary:
    return Vocabulary(FILE)


def test_the_file_is_read_whole() -> None:
    found = vocabulary()
    assert tuple(found.fields) != () and set(found.fields) == set(found.enums["OpKind"])
    assert (len(found.fields), len(found.enums["Activation"]), len(found.enums["BinaryOp"])) == (187, 29, 14)
    shown = [kind for arm in found.displays for kind in arm.kinds]
    assert sorted(shown) == sorted(found.fields)
    assert {kind for arm in found.arities for kind in arm.kinds} == set(found.fields)


def test_every_kind_is_declared_and_no_other() -> None:
    assert set(all_kinds()) == set(vocabulary().fields)


KINDS = sorted(all_kinds())


@pytest.mark.parametrize("name", KINDS)
def test_attributes(name: str) -> None:
    ours = {field.name: field for field in fields(all_kinds()[name])}
    wanted = {ours_of(name, field): python_type(kind) for field, kind in vocabulary().fields[name].items()}
    assert list(ours)[: len(wanted)] == list(wanted)
    added = list(ours)[len(wanted) :]
    assert {f"{name}.{field}" for field in added} == keys_of(OURS, name)
    assert all(has_default(ours[field]) for field in added)
    differing = {f"{name}.{field}" for field, kind in wanted.items() if not same_type(kind, str(ours[field].type))}
    assert differing == keys_of(DIFFERENT, name)


def same_type(wanted: str, found: str) -> bool:
    """An array's length may be left to the op's checks: `tuple[int, ...]` for `tuple[int, int, int]`."""
    return found in (wanted, re.sub(r"^tuple\[(\w+)(, \1)+\]$", r"tuple[\1, ...]", wanted))


def ours_of(kind: str, field: str) -> str:
    """Our name of a field: that of a tuple variant is called `fn`."""
    return "fn" if field == "0" else field


def keys_of(table: Mapping[str, str], kind: str) -> set[str]:
    return {key for key in table if key.split(".")[0] == kind and not key.endswith("()")}


def has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING


def python_type(rust: str) -> str:
    """The annotation that a Rust type becomes."""
    if rust in PRIMITIVES:
        return PRIMITIVES[rust]
    if match := re.fullmatch(r"Option<(.*)>", rust):
        return f"{python_type(match[1])} | None"
    if match := re.fullmatch(r"Vec<(.*)>", rust):
        return f"tuple[{python_type(match[1])}, ...]"
    if match := re.fullmatch(r"\[(.*); (\d+)\]", rust):
        return f"tuple[{', '.join([python_type(match[1])] * int(match[2]))}]"
    return rust.rpartition("::")[2]


ENUMS = sorted(set(vocabulary().enums) - set(NO_ENUM))


@pytest.mark.parametrize("name", ENUMS)
def test_members(name: str) -> None:
    ours = RENAMED.get(name, name)
    members = member_names(find_type(ours))
    wanted = set(vocabulary().enums[name])
    assert wanted <= members
    assert {f"{ours}.{member}" for member in members - wanted} == keys_of(OURS, ours)


def find_type(name: str) -> Any:
    """An enum, or an alias of several classes, of that name in the modules of the kinds."""
    modules = {sys.modules[kind.__module__] for kind in all_kinds().values()}
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def member_names(kind: Any) -> set[str]:
    """The values of an enum, or the names of the classes that a type is one of."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {member.value for member in kind}
    return {choice.__name__ for choice in typing.get_args(kind) or (kind,)}


def test_what_is_ours_is_there_and_not_the_vocabularys() -> None:
    for key in (*OURS, *DIFFERENT):
        name, _, part = key.removesuffix("()").partition(".")
        if name in all_kinds():
            assert not part or part in {field.name for field in fields(all_kinds()[name])}, key
        else:
            assert part in member_names(find_type(name)), key


def test_nested_graphs() -> None:
    held = {
        name: tuple(field for field, kind in kinds.items() if "crate::Graph" in kind)
        for name, kinds in vocabulary().fields.items()
    }
    assert sum(map(len, held.values())) == 12
    assert {name: kind.bodies for name, kind in all_kinds().items()} == {name: held[name] for name in all_kinds()}


def sample(kind: type[Op], full: bool, /, **given: object) -> Op:
    """An op with plain attributes; `full`: bools are true, and what may be missing is there."""
    required = (field for field in fields(kind) if not has_default(field) or field.name in given)
    names = {ours_of(kind.__name__, field) for field in vocabulary().fields[kind.__name__]}
    optional = (field for field in fields(kind) if has_default(field) and field.name in names)
    values = {field.name: value_of(str(field.type), kind, full) for field in (*required, *optional)}
    return kind(**{**values, **given})


PLAIN: Mapping[str, object] = {
    **{"int": 3, "float": 0.5, "str": "a", "bytes": b"abc"},
    **{"Graph": Graph("g", (), (), {}, {}), "QuantScheme": QuantScheme(SchemeKind.INT8_BLOCK, 32)},
}


def value_of(annotation: str, kind: type[Any], full: bool) -> object:
    if annotation == "bool":
        return full
    if annotation in PLAIN:
        return PLAIN[annotation]
    if annotation.endswith("| None"):
        return value_of(annotation.removesuffix("| None").strip(), kind, full) if full else None
    if annotation.startswith("tuple["):
        items = split(annotation[6:-1], ",")
        return tuple(value_of(item, kind, full) for item in (items[:1] * 2 if items[-1] == "..." else items))
    found = getattr(sys.modules[kind.__module__], annotation)
    if annotation == "Op":
        return all_kinds()["StopGradient"]()
    if isinstance(found, type) and issubclass(found, Enum):
        return next(iter(found))
    found = (typing.get_args(found) or (found,))[0]
    return found(*(value_of(str(field.type), found, full) for field in fields(found)))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_display_strings_that_are_one_template(name: str, full: bool) -> None:
    arm = next(arm for arm in vocabulary().displays if name in arm.kinds)
    found = template(arm.expression)
    op = sample(all_kinds()[name], full)
    if found is None or name in PINNED_NAMES:
        assert name in PINNED_NAMES, f"{name} has no row in PINNED"
    else:
        assert op.display() == filled(found, arm.pattern, op)


def filled(found: Template, pattern: str, op: Op) -> str:
    """A template with the attributes of an op."""
    values = {field.name: Shown(getattr(op, field.name)) for field in fields(op)}
    if match := re.fullmatch(r"Op::\w+\((\w+)\)", pattern):
        values[match[1]] = values["fn"]
    return found.text.format(*(argument(text, op) for text in found.arguments), **values)


def argument(text: str, op: Op) -> Shown:
    """The value of an expression: `x`, `x.len()`, `x.first()..`, `x.get(2)..`, `if *x { "a" } else { "b" }`."""
    if match := re.fullmatch(r"(\w+)", text):
        return Shown(getattr(op, match[1]))
    if match := re.fullmatch(r"(\w+)\.len\(\)", text):
        return Shown(len(getattr(op, match[1])))
    if match := re.fullmatch(r"(\w+)\.(?:first\(|get\()(\d*)\)\.copied\(\)\.unwrap_or\(0\)", text):
        return Shown(dict(enumerate(getattr(op, match[1]))).get(int(match[2] or 0), 0))
    match = re.fullmatch(r'if \*(\w+) \{ "(.*)" \} else \{ "(.*)" \}', text)
    assert match is not None, text
    return Shown(match[2] if getattr(op, match[1]) else match[3])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_operand_counts(name: str, full: bool) -> None:
    op = sample(all_kinds()[name], full)
    arms = [arm for arm in vocabulary().arities if name in arm.kinds]
    count = counted(arms[0].expression, op) if len(arms) == 1 else None
    if count is None:
        assert name in PINNED_NAMES, f"{name} has no row in PINNED"
    elif f"{name}()" in OURS:
        assert str(op.arity) != count and op.arity.accepts(int(count))
    else:
        assert str(op.arity) == count


def counted(expression: str, op: Op) -> str | None:
    """What an arm says of the operands of an op, as `Arity` shows it; None where it decides by more than a sum."""
    if match := re.fullmatch(r"Arity::Range \{ min: (\d+), max: (\d+) \}", expression):
        return f"{match[1]} to {match[2]}"
    if match := re.fullmatch(r"Arity::(Exact|AtLeast)\((\d+)\)", expression):
        return match[2] if match[1] == "Exact" else f"at least {match[2]}"
    total = 0
    for term in expression.split(" + "):
        match = re.fullmatch(r"(\d+)|\*(\w+) as usize|usize::from\(\*(\w+)\)", term)
        if match is None:
            return None
        total += int(match[1] or getattr(op, match[2] or match[3]))
    return str(total)


def pinned() -> Iterator[tuple[str, dict[str, object], str, str]]:
    """(kind, attributes, display string, operand count), read off the file's arms that decide by the attributes."""
    for verb in ("Quantize", "Dequantize"):
        for axis, scales, shown in ((None, (0.5,), "s=0.5"), (1, (0.5, 2.0), "axis=1,nch=2")):
            yield verb, {"axis": axis, "scales": scales}, f"{verb.lower()}({shown})", "1"
    for mode, text, count in (
        (PerBatch(), "PerBatch", "1"),
        (EMA(1e-5), "EMA { decay: 1e-5 }", "2"),
        (Fixed(), "Fixed", "2"),
    ):
        given: dict[str, object] = {"bits": 4, "axis": 0, "scale_mode": mode}
        yield "FakeQuantize", given, f"fake_quant(bits=4,axis=0,ste=Identity,scale={text})", count
    yield "FakeQuantize", {"bits": 8, "axis": None}, "fake_quant(bits=8,ste=Identity,scale=PerBatch)", "1"
    yield "FakeQuantizeLSQ", {"bits": 8, "axis": None}, "fake_quant_lsq(bits=8)", "2"
    yield "FakeQuantizeLSQ", {"bits": 8, "axis": 1}, "fake_quant_lsq(bits=8,axis=1)", "2"
    for verb in ("Cumsum", "CumProd", "CumMax"):
        yield verb, {"axis": -1, "exclusive": False}, f"{verb.lower()}(axis=-1)", "1"
        yield verb, {"axis": 0, "exclusive": True}, f"{verb.lower()}(axis=0,excl)", "1"
    yield "Pad", {"pads": ((0, 1),), "value": 2.0}, "pad([[0, 1]],Constant(2.0))", "1"
    yield (
        "QMatMul",
        {"x_zp": -1, "w_zp": 0, "out_zp": 2, "mult": (0.25,)},
        "q_matmul(x_zp=-1,w_zp=0,out_zp=2,mult=0.25)",
        "3",
    )
    for kind, count in (("INT8_BLOCK", "4 to 5"), ("GGUF", "2"), ("MXFP4X2", "3"), ("NVFP4_BLOCK", "4")):
        scheme = QuantScheme(SchemeKind[kind])
        yield "DequantMatMul", {"scheme": scheme}, f"dequant_matmul({scheme})", count
    yield "Sample", {"top_k": 0, "top_p": 1.0, "temperature": 1.0}, "sample(t=1)", "1"
    yield "Sample", {"top_k": 40, "top_p": 0.5, "temperature": 0.25}, "sample(t=0.25,k=40,p=0.5)", "1"
    yield "RngNormal", {"mean": 0.0, "scale": 1.0, "key": 7, "op_seed": None}, "rng_normal(0,1,key=7)", "0 to 1"
    yield "RngUniform", {"low": 0.0, "high": 1.0, "key": 7, "op_seed": 2.0}, "rng_uniform(0,1,key=7,seed=2)", "0 to 1"
    yield from pinned_attention()
    yield from pinned_recurrent()
    yield from pinned_fused()
    yield from pinned_control()


def pinned_attention() -> Iterator[tuple[str, dict[str, object], str, str]]:
    heads: dict[str, object] = {"num_heads": 2, "head_dim": 4}
    for mask, shown, backward, name, more in (
        (MaskKind.NONE, ",nomask", "nomask", "None", 0),
        (MaskKind.CAUSAL, ",causal", "causal", "Causal", 0),
        (MaskKind.SLIDING_WINDOW, ",sw=5", "sw=5", "SlidingWindow(5)", 0),
        (MaskKind.CUSTOM, "", "custom", "Custom", 1),
        (MaskKind.BIAS, ",bias", "bias", "Bias", 1),
    ):
        given = {**heads, "mask_kind": mask, "window": 5}
        yield "AttentionBackward", given, f"attn_bwd_Query(h=2,d=4,{backward})", str(4 + more)
        yield "AttentionBackwardAll", given, f"attn_bwd_all(h=2,d=4,{name})", str(4 + more)
        plain = dict.fromkeys(("v_head_dim", "score_scale", "attn_logit_softcap"))
        yield "Attention", {**given, **plain}, f"attention(h=2,d=4{shown})", str(3 + more)
    wide = {**heads, "mask_kind": MaskKind.NONE, "v_head_dim": 3, "score_scale": 0.5, "attn_logit_softcap": 50.0}
    yield "Attention", wide, "attention(h=2,d=4,nomask),vd=3,scale=0.5,softcap=50", "3"


def pinned_recurrent() -> Iterator[tuple[str, dict[str, object], str, str]]:
    yield "SynthMatMul", {"kind": Codebook(4, 16)}, "synth_matmul(codebook:16\N{MULTIPLICATION SIGN}4)", "3"
    for carry in (False, True):
        for channels in (False, True):
            given: dict[str, object] = {"state_size": 8, "carry_state": carry, "gate_per_channel": channels}
            shown = f"(n=8{',carry' if carry else ''}{',gpc' if channels else ''})"
            yield "GatedDeltaNet", given, f"gated_delta_net{shown}", str(5 + carry)
            yield "GatedDeltaNetBackward", given, f"gated_delta_net_backward{shown}", str(6 + carry)
        layers: dict[str, object] = {"hidden_size": 8, "num_layers": 2, "bidirectional": not carry, "carry": carry}
        shown = f"(h=8,layers=2,{'uni,carry' if carry else 'bi'})"
        yield "Lstm", layers, f"lstm{shown}", "6" if carry else "4"
        yield "Gru", layers, f"gru{shown}", "6" if carry else "5"
        act = "uni,tanh,carry" if carry else "bi,relu"
        yield "Rnn", {**layers, "relu": not carry}, f"rnn(h=8,layers=2,{act})", "5" if carry else "4"


def pinned_fused() -> Iterator[tuple[str, dict[str, object], str, str]]:
    gelu = find_type("ActivationFn").GELU
    f16 = find_type("DType").F16
    yield "FusedMatMulBiasAct", {"activation": None}, "fused_mm_bias", "3"
    yield "FusedMatMulBiasAct", {"activation": gelu}, "fused_mm_bias_Gelu", "3"
    yield "FusedConvBiasAct", {"activation": gelu, "has_residual": True}, "fused_conv_bias_res_Gelu", "4"
    yield "FusedConvBiasAct", {"activation": None, "has_residual": False}, "fused_conv_bias", "3"
    for name, norm in (("FusedResidualLN", "ln"), ("FusedResidualRmsNorm", "rms")):
        yield name, {"has_bias": False, "eps": 0.5}, f"fused_residual_{norm}(eps=0.5)", "4"
        yield name, {"has_bias": True, "eps": 0.5}, f"fused_residual_bias_{norm}(eps=0.5)", "5"
    yield "FusedSwiGLU", {"cast_to": None, "gate_first": False}, "fused_swiglu()", "1"
    yield "FusedSwiGLU", {"cast_to": f16, "gate_first": True}, "fused_swiglu(cast=f16,gate_first)", "1"
    yield "FusedSwiGLU", {"cast_to": None, "gate_first": True}, "fused_swiglu(,gate_first)", "1"
    block: dict[str, object] = {"num_heads": 2, "head_dim": 4, "has_bias": True}
    yield "FusedAttentionBlock", {**block, "has_rope": True}, "fused_attn(h=2,d=4,bias,rope)", "8"
    yield "FusedAttentionBlock", {**block, "has_bias": False, "has_rope": False}, "fused_attn(h=2,d=4)", "4"
    layer = {**block, "intermediate_size": 16}
    yield "FusedTransformerLayer", layer, "fused_layer(h=2,d=4,int=16,bias)", "14"
    yield "FusedTransformerLayer", {**layer, "has_bias": False}, "fused_layer(h=2,d=4,int=16)", "8"
    region: dict[str, object] = {"num_inputs": 2, "chain": (), "input_modulus": (0,) * 16}
    yield "ElementwiseRegion", {**region, "scalar_input_mask": 0}, "ew_region(in=2,steps=0)", "2"
    doubled = {**region, "scalar_input_mask": 10, "prologue": find_type("RegionPrologue").RESIZE_NEAREST_2X}
    yield "ElementwiseRegion", doubled, "ew_region(in=2,steps=0,scalar_mask=0xa,prologue=resize2x)", "2"


def pinned_control() -> Iterator[tuple[str, dict[str, object], str, str]]:
    graph = PLAIN["Graph"]
    yield "While", {"max_iterations": None}, "while(...)", "at least 0"
    yield "While", {"max_iterations": 9}, "while(...max=9)", "at least 0"
    scan: dict[str, object] = {"length": 4, "num_xs": 0, "save_trajectory": False}
    yield "Scan", {**scan, "num_bcast": 2}, "scan(len=4)", "3"
    yield "Scan", {**scan, "num_bcast": 0, "num_xs": 2, "save_trajectory": True}, "scan(len=4,xs=2,traj)", "3"
    yield "ScanBackward", scan, "scan_bwd(len=4)", "3"
    yield "ScanBackward", {**scan, "num_xs": 2, "save_trajectory": True}, "scan_bwd(len=4,xs=2,traj)", "5"
    yield "ScanBackwardXs", {**scan, "xs_idx": 0}, "scan_bwd_xs(len=4,xs=0,idx=0)", "3"
    tracked = {**scan, "num_xs": 2, "xs_idx": 1, "save_trajectory": True}
    yield "ScanBackwardXs", tracked, "scan_bwd_xs(len=4,xs=2,idx=1,traj)", "5"
    bodies: dict[str, object] = {"num_inputs": 2, "vjp_body": None, "jvp_body": None}
    yield "CustomFn", bodies, "custom_fn(in=2)", "2"
    yield "CustomFn", {**bodies, "vjp_body": graph, "jvp_body": graph}, "custom_fn(in=2,vjp,jvp)", "2"


PINNED = list(pinned())
PINNED_NAMES = {row[0] for row in PINNED}


@pytest.mark.parametrize(("name", "given", "text", "count"), PINNED, ids=[f"{row[0]} {row[2]}" for row in PINNED])
def test_display_strings_and_operand_counts_that_attributes_decide(
    name: str, given: dict[str, object], text: str, count: str
) -> None:
    op = sample(all_kinds()[name], False, **given)
    assert (op.display(), str(op.arity)) == (text, count)
