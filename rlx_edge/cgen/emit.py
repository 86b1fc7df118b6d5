"""A plan as C text, through the templates beside this file."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from rlx_edge.cgen import text
from rlx_edge.cgen.costs import build_flags, costs_of
from rlx_edge.cgen.emit_steps import StepText, WeightText, collect_weights, step_texts
from rlx_edge.cgen.lower_windows import float_bits
from rlx_edge.cgen.plan import Plan, Tensor
from rlx_edge.cgen.planner import declared_stack
from rlx_edge.cgen.predict import predict
from rlx_edge.cgen.preprocess_tables import PreprocessTables, preprocess_tables
from rlx_edge.cgen.target import TargetConfig, get_target
from rlx_edge.ir import DType
from rlx_edge.reference.fixedpoint import input_rounding, round_half_away

API_VERSION = 2
MAX_NAME = 63

_CTYPES = {DType.I8: "int8_t", DType.F32: "float", DType.I32: "int32_t"}
_DTYPE_NAMES = {DType.I8: "RLX_S8", DType.F32: "RLX_F32", DType.I32: "RLX_S32"}


@dataclass(frozen=True)
class PortText:
    """An input or output, in the words of the header."""

    accessor: str
    macro: str
    text: str
    ctype: str
    elements: int
    shape: tuple[int, ...]
    layout: str | None
    offset: int
    quant: bool
    scale: str
    scale_bits: int
    zero_point: int
    suffix: str


@dataclass(frozen=True)
class TensorText:
    """An entry of the model's table of tensors."""

    name: str
    offset: int
    bytes: int
    step: str
    scale: str
    zero_point: int
    dtype: str
    rank: int
    dims: str


@dataclass(frozen=True)
class ModelText:
    """Everything that the templates show."""

    name: str
    upper: str
    source: str
    target: str
    requires: str | None
    api_version: int
    kernels_id: str
    ident: str
    hash_bytes: str
    macs: int
    arena_bytes: int
    arena_bound: int
    input_preserved: bool
    stack_bytes: int
    stack_note: str
    cost_lines: tuple[str, ...]
    inputs: tuple[PortText, ...]
    outputs: tuple[PortText, ...]
    output_indices: tuple[int, ...]
    tensors: tuple[TensorText, ...]
    steps: tuple[StepText, ...]
    constants: tuple[WeightText, ...]
    weight_bytes: int
    weights_crc: str
    proofs: tuple[str, ...]
    has_constant_views: bool
    stage_count: int
    preprocess: PreprocessTables | None
    ties_to_even: bool
    custom_headers: tuple[tuple[str, str], ...]
    """Of users' kernels, and a digest of their text."""


@dataclass(frozen=True)
class EmittedModel:
    """The files of a model's folder by name, and its hash (32 hexadecimal digits)."""

    name: str
    files: Mapping[str, str]
    hash: str


def emit(plan: Plan, name: str, target: TargetConfig, kernels_id: str) -> EmittedModel:
    """Write a plan as C. The same plan gives the same text; its hash covers weights, plan and kernels."""
    model = _model_text(plan, text.identifier(name), target, kernels_id)
    blank = _render(model)
    digest = hashlib.sha256("\0".join(blank.values()).encode()).hexdigest()[:32]
    rules = sorted({n.op.requant.value for n in plan.graph.nodes if hasattr(n.op, "requant")})
    ident = f"{name} {'+'.join(rules) or 'exact'} {target.name} {digest}"
    hash_bytes = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(digest))
    return EmittedModel(name, _render(replace(model, ident=ident, hash_bytes=hash_bytes)), digest)


@cache
def _environment() -> Environment:
    """With the templates, which are compiled once."""
    environment = Environment(
        loader=PackageLoader("rlx_edge.cgen"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["comment"] = text.comment
    environment.filters["cstring"] = text.c_string
    return environment


def _render(model: ModelText) -> dict[str, str]:
    files = {f"{model.name}.h": "model.h.j2", f"{model.name}.c": "model.c.j2"}
    files |= {f"{model.name}_weights.h": "weights.h.j2", f"{model.name}_weights.c": "weights.c.j2"}
    return {file: _environment().get_template(template).render(m=model) for file, template in files.items()}


def _model_text(plan: Plan, name: str, target: TargetConfig, kernels_id: str) -> ModelText:
    constants, names = collect_weights(plan)
    packed = b"".join(c.values.astype(c.values.dtype.newbyteorder("<")).tobytes() for c in constants)
    inputs = [plan.tensors[i] for i in range(len(plan.graph.inputs))]
    outputs = [plan.tensors[i] for i in plan.outputs]
    names_on_device = short_names(plan.all_tensors)
    return ModelText(
        name=name,
        upper=name.upper(),
        source=plan.graph.metadata.get("source", plan.graph.name),
        target=target.name,
        requires=target.requires,
        api_version=API_VERSION,
        kernels_id=kernels_id,
        ident="",
        hash_bytes="0",
        macs=sum(plan.graph.macs(node) for node in plan.graph.nodes),
        arena_bytes=plan.arena_bytes,
        arena_bound=plan.arena_bound,
        input_preserved=plan.input_preserved,
        stack_bytes=plan.stack_bytes,
        stack_note=_stack_note(plan, name),
        cost_lines=_cost_lines(plan),
        inputs=tuple(_port(plan, name, "input", t, i, len(inputs)) for i, t in enumerate(inputs)),
        outputs=tuple(_port(plan, name, "output", t, i, len(outputs)) for i, t in enumerate(outputs)),
        output_indices=plan.outputs,
        tensors=tuple(_tensor(tensor, names_on_device[tensor.name]) for tensor in plan.all_tensors),
        steps=step_texts(plan, names),
        constants=constants,
        weight_bytes=len(packed),
        weights_crc=f"0x{zlib.crc32(packed):08x}",
        proofs=plan.proofs,
        has_constant_views=any(
            not isinstance(view.base, int) for step in plan.steps for call in step.calls for view in call.inputs
        ),
        stage_count=sum(bool(step.lines) for step in plan.steps),
        preprocess=None
        if len(inputs) > 1
        else preprocess_tables(plan.graph.metadata.get("preprocess"), inputs[0].type, input_rounding(plan.graph)),
        ties_to_even=input_rounding(plan.graph) is not round_half_away,
        custom_headers=tuple(
            (f"{kernel.name}.h", hashlib.sha256(repr(kernel.files).encode()).hexdigest()[:16])
            for kernel in plan.kernels
            if kernel.files
        ),
    )


def _cost_lines(plan: Plan) -> tuple[str, ...]:
    """What the model will take of its core, for people."""
    told = predict(plan)
    if told is None:
        return ()
    return (
        f"Predicted for {told.core}, compiled with {build_flags()}: {told.instructions:,} instructions a run;",
        f"{told.flash_bytes:,} bytes of flash: {told.constant_bytes:,} of constants, {told.kernel_bytes:,} of kernels, "
        f"{told.code_bytes:,} of the code below.",
        *(f"A rough guess, as {name} was not measured." for name in told.rough),
    )


def _stack_note(plan: Plan, name: str) -> str:
    if costs_of(get_target(plan.target)) is None:
        return f"upper bound of what {name}_run takes"
    return (
        f"upper bound of what {name}_run takes, compiled with {build_flags()}; {declared_stack(plan.steps)} under any "
        "optimization level"
    )


def _port(plan: Plan, name: str, role: str, tensor: Tensor, index: int, count: int) -> PortText:
    suffix = f"_{index}" if count > 1 else ""
    quant = tensor.type.quant
    return PortText(
        accessor=f"{name}_{role}{suffix}",
        macro=f"{name}_{role}{suffix}".upper(),
        text=f"{tensor.name}: {tensor.type}",
        ctype=_CTYPES[tensor.type.dtype],
        elements=tensor.type.elements,
        shape=tensor.type.shape,
        layout=plan.graph.metadata.get("layout") if len(tensor.type.shape) == 4 else None,
        offset=tensor.offset,
        quant=quant is not None,
        scale=float_literal(quant.scale if quant else 0.0),
        scale_bits=float_bits(quant.scale) if quant else 0,
        zero_point=quant.zero_point if quant else 0,
        suffix=suffix,
    )


def short_names(tensors: Sequence[Tensor]) -> dict[str, str]:
    """Tensor names as the device says them: printable ASCII, at most 63 characters, still unique; by full name."""
    made: dict[str, str] = {}
    taken: set[str] = set()
    count = 0
    for tensor in tensors:
        short = text.comment(tensor.name)
        if len(short) > MAX_NAME and ";" in short:  # TFLite's fused tensors: the last of their names says most
            short = short.rsplit(";", 1)[-1] or short
        attempt = short[:MAX_NAME]
        while attempt in taken:
            count += 1
            attempt = f"{count}:{short}"[:MAX_NAME]
        taken.add(attempt)
        made[tensor.name] = attempt
    return made


def _tensor(tensor: Tensor, name: str) -> TensorText:
    quant = tensor.type.quant
    return TensorText(
        name=name,
        offset=tensor.offset,
        bytes=tensor.type.bytes,
        step="RLX_NO_STEP" if tensor.step is None else f"{tensor.step}u",
        scale=float_literal(quant.scale if quant else 0.0),
        zero_point=quant.zero_point if quant else 0,
        dtype=_DTYPE_NAMES[tensor.type.dtype],
        rank=len(tensor.type.shape),
        dims=", ".join(map(str, tensor.type.shape)) or "0",
    )


def float_literal(value: float) -> str:
    """A C literal that reads back as the same float32."""
    digits = f"{np.float32(value):.9g}"
    return f"{digits}f" if any(c in digits for c in ".e") else f"{digits}.0f"
