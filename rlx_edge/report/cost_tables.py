"""What layers cost, predicted and measured, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.markup import escape
from rich.table import Table

from rlx_edge.cgen.predict import LayerPrediction, Prediction
from rlx_edge.device.board_profile import BoardProfile
from rlx_edge.device.profile import Profile
from rlx_edge.device.sizes import Section
from rlx_edge.report.tables import short, table

PORTABLE = "portable"


def profile_table(profile: Profile) -> Table:
    """Measured instructions of each layer and, where the cost model knows the core, what it predicted."""
    macs = sum(layer.macs for layer in profile.layers)
    per_mac = profile.instructions / macs if macs else ""
    rows: list[tuple[object, ...]] = [
        (
            short(layer.name),
            layer.op,
            layer.macs,
            layer.instructions,
            layer.instructions / layer.macs if layer.macs else "",
        )
        for layer in profile.layers
    ]
    total: tuple[object, ...] = ("total", "", macs, profile.instructions, per_mac)
    columns: tuple[str, ...] = ("layer", "op", "MACs", "instructions", "per MAC")
    if profile.predicted_instructions is not None:
        columns = (*columns, "variant", "predicted", "error")
        rows = [
            (
                *row,
                layer.variant,
                layer.predicted_instructions,
                _error(layer.predicted_instructions, layer.instructions),
            )
            for row, layer in zip(rows, profile.layers, strict=True)
        ]
        whole = _error(profile.predicted_instructions, profile.instructions)
        total = (*total, "", profile.predicted_instructions, whole)
    title = f"{escape(profile.model)} on {profile.board}: instructions (emulated, not cycles)"
    return table(title, columns, rows, total)


def board_profile_table(profile: BoardProfile) -> Table:
    """Cycles of each layer, beside the instructions that were predicted where the cost model knows the core."""
    rows = [
        (
            short(layer.name),
            layer.op,
            layer.macs,
            layer.cycles,
            layer.predicted_instructions if layer.predicted_instructions is not None else "",
            layer.stack_bytes if profile.stack_bytes is not None else "",
        )
        for layer in profile.layers
    ]
    told = [layer.predicted_instructions for layer in profile.layers if layer.predicted_instructions is not None]
    macs = sum(layer.macs for layer in profile.layers)
    total = ("total", "", macs, profile.cycles, sum(told) if told else "", profile.stack_bytes or "")
    title = f"{escape(profile.model)} on {escape(profile.board)}: cycles of a clock of {profile.count_hz:,} Hz"
    return table(title, ("layer", "op", "MACs", "cycles", "predicted instructions", "stack"), rows, total)


def sections_table(found: Sequence[Section]) -> Table:
    """What the image takes, section by section."""
    rows = [(section.name, section.memory, section.bytes) for section in found]
    return table("sections of the image, the link included", ("section", "in", "bytes"), rows)


def profile_verdict(profile: Profile) -> str:
    """How far the prediction of the whole model is off."""
    predicted = profile.predicted_instructions
    return f"predicted {predicted:,} instructions: {_error(predicted, profile.instructions)} beside the measurement"


def _error(predicted: int | None, measured: int) -> str:
    return f"{(predicted - measured) / measured:+.1%}" if predicted is not None and measured else ""


def prediction_table(title: str, prediction: Prediction) -> Table:
    """What each layer will take of a core, and by which variant of kernel."""
    rows = [
        (
            short(layer.name),
            layer.op,
            layer.variant,
            layer.instructions,
            layer.flash_bytes,
            layer.ram_bytes,
            layer.stack_bytes,
        )
        for layer in prediction.layers
    ]
    total = (
        "total",
        "",
        "",
        prediction.instructions,
        prediction.flash_bytes,
        prediction.ram_bytes,
        prediction.stack_bytes,
    )
    return table(escape(title), ("layer", "op", "variant", "instructions", "flash", "RAM", "stack"), rows, total)


def prediction_text(told: Prediction) -> str:
    """The whole model in a line: instructions, where the bytes of flash go, RAM and stack."""
    return (
        f"predicted for {told.core}: {told.instructions:,} instructions; flash {told.flash_bytes:,} bytes "
        f"({told.constant_bytes:,} constants, {told.kernel_bytes:,} kernels, {told.code_bytes:,} the model's own code; "
        f"start-up and link come on top); arena {told.ram_bytes:,} bytes; stack {told.stack_bytes:,} bytes"
    )


def reason_lines(layers: Iterable[LayerPrediction]) -> list[str]:
    """Why layers that only the portable kernel can compute have no faster variant, a line a reason."""
    by_reason: dict[str, list[str]] = {}
    for layer in layers:
        for reason in layer.reasons if layer.variant == PORTABLE and not layer.others else ():
            by_reason.setdefault(reason, []).append(short(layer.name))
    return [f"{reason} ({_some(names)})" for reason, names in by_reason.items()]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
