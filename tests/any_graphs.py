"""Random graphs of every kind. `MAKERS` says how a node of each is added; a further kind is one more entry, or case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graph_maker import BOOL, F32, FLAG, MAKERS, PLAIN, Make, Maker
from hypothesis import strategies as st
from node_makers import FRONT_PAGE
from test_beyond_shapes import CASES as BEYOND
from test_beyond_shapes import parse
from test_further_shapes import CASES as FURTHER
from test_sequence_shapes import CASES as SEQUENCES

from rlx_edge.ir import Graph, TensorType
from rlx_edge.ir.ops import Activation, ActivationFn, Declared, Op, Where
from rlx_edge.ir.ops.attributes import Codebook
from rlx_edge.ir.ops.control import Custom, CustomFn, If, Scan, ScanBackward, ScanBackwardXs, While
from rlx_edge.ir.ops.fused_layers import FusedAttentionBlock, FusedTransformerLayer
from rlx_edge.ir.ops.ordering import ScatterAdd
from rlx_edge.ir.ops.regions import BatchElementwiseRegion, ChainOperand, ChainStep, Source
from rlx_edge.ir.ops.spectral import FftNorm, FftQ, FftQScale
from rlx_edge.ir.ops.synth import SynthMatMul, SynthReconstruct
from rlx_edge.ir.vocabulary import all_kinds

RELU = (ChainStep(Activation(ActivationFn.RELU), (ChainOperand(Source.INPUT, 0),)),)
MORE: list[tuple[Op, str, str]] = [
    (ScatterAdd(0), "3,2 i32:3", "5,2"),
    (BatchElementwiseRegion(RELU, 2, 0, (0,) * 16), "2,3 2,3", "2,2,3"),
    (FusedAttentionBlock(2, 4, False, False), "1,5,6 6,24 8,6 1,5", "1,5,6"),
    (
        FusedTransformerLayer(2, 4, 16, 1e-5, 1e-5, ActivationFn.GELU, False),
        "1,5,8 8,24 8,8 8 8,16 16,8 8 1,5",
        "1,5,8",
    ),
    (FftQ(False, FftNorm.BACKWARD, FftQScale.PER_STAGE), "i32:3,16", "i32:3,16"),
    (SynthMatMul(Codebook(4, 16)), "2,12 u8:7,3 16,4", "2,7"),
    (SynthReconstruct(Codebook(4, 16)), "u8:7,3 16,4", "12,7"),
]
"""What the tables of other tests do not have."""

__all__ = ["MAKERS", "Maker", "any_graphs", "any_ops"]

st.register_type_strategy(ChainStep, st.builds(ChainStep, st.from_type(Activation) | st.from_type(Where)))
any_ops = st.sampled_from([kind for kind in all_kinds().values() if not kind.bodies]).flatmap(st.from_type)
"""Ops of all kinds without nested graphs, with attributes from their type hints alone: no valid graph may have them."""


def types(m: Maker, most: int = 2) -> list[TensorType]:
    return [TensorType(m.shape(), F32) for _ in range(m.number(1, most))]


def leaves(m: Maker, types: Sequence[TensorType]) -> list[int]:
    return [m.tensor(type.shape, type.dtype, type.quant) for type in types]


def if_(m: Maker) -> int:
    given, made = types(m), types(m)
    op = If(m.body(given, made), m.body(given, made))
    return m.add(op, m.tensor((), BOOL), *leaves(m, given))


def while_(m: Maker) -> int:
    carried = types(m)
    return m.add(While(m.body(carried, [FLAG]), m.body(carried, carried), m.pick(None, 0, 3)), *leaves(m, carried))


def scan(m: Maker) -> int:
    (carry,), held, rows = types(m, 1), types(m), types(m)
    length = m.number(1, 4)
    xs = [replace(row, shape=(length, *row.shape)) for row in rows]
    body = m.body([carry, *held, *rows], [carry])
    op = Scan(body, length, m.chance(), len(held), len(rows), m.number(0, length))
    return m.add(op, *leaves(m, [carry, *held, *xs]))


def scan_backward(of_xs: bool) -> Make:
    def make(m: Maker) -> int:
        (carry,), rows = types(m, 1), types(m)
        length = m.number(1, 4)
        kept, saved = m.number(0, length), m.chance()
        xs = [replace(row, shape=(length, *row.shape)) for row in rows]
        stack = replace(carry, shape=(kept or length, *carry.shape))
        vjp = m.body([carry, *rows, carry], [carry, *rows], ["d_output"])
        forward = m.body([carry, *rows], [carry]) if 0 < kept < length or m.chance() else None
        operands = leaves(m, [carry, stack, stack if saved else carry, *xs])
        if of_xs:
            return m.add(ScanBackwardXs(vjp, length, saved, len(rows), len(rows) - 1, kept, forward), *operands)
        return m.add(ScanBackward(vjp, length, saved, len(rows), kept, forward), *operands)

    return make


def custom(m: Maker) -> int:
    given, (made,) = types(m), types(m, 1)
    return m.add(Custom(m.name(), len(given), m.pick(b"", b"\0\xff")), *leaves(m, given), type=made)


def custom_fn(m: Maker) -> int:
    given, (made,) = types(m), types(m, 1)
    vjp = m.body([*given, made, made], given, ["primal_output", "d_output"]) if m.chance() else None
    tangents = [f"tangent_{i}" for i in range(len(given))]
    jvp = m.body([*given, *given], [made], tangents) if m.chance() else None
    return m.add(CustomFn(m.body(given, [made]), vjp, jvp, len(given)), *leaves(m, given))


def example(found: Sequence[tuple[Op, list[TensorType], TensorType]]) -> Make:
    """A node as one of the examples has it."""

    def make(m: Maker) -> int:
        op, operands, out = m.pick(*found)
        return m.add(op, *leaves(m, operands), type=out if isinstance(op, Declared) else None)

    return make


EXAMPLES = [
    *((op, [parse(text) for text in operands.split()], parse(out)) for op, operands, out in (*BEYOND, *MORE)),
    *(
        (op, [TensorType(shape, F32) for shape in shapes], TensorType(out, F32))
        for op, _, shapes, out in (*FURTHER, *SEQUENCES)
    ),
]
"""Op, operands and output of every kind that is neither of the front page nor control flow."""

PLAIN.update(FRONT_PAGE)
PLAIN.update(
    {
        kind: example([case for case in EXAMPLES if type(case[0]) is kind])
        for kind in dict.fromkeys(type(case[0]) for case in EXAMPLES)
    }
)
PLAIN[Custom] = custom
MAKERS.update(PLAIN)
MAKERS.update({If: if_, While: while_, Scan: scan, CustomFn: custom_fn})
MAKERS.update({ScanBackward: scan_backward(False), ScanBackwardXs: scan_backward(True)})


@st.composite
def any_graphs(draw: st.DrawFn, kinds: Sequence[type[Op]] = ()) -> Graph:
    """A valid graph with nodes of a few of these kinds (of all, where none are named) and nested graphs of any."""
    maker = Maker(draw(st.integers(0, 1 << 30)))
    for kind in draw(st.lists(st.sampled_from(list(kinds or MAKERS)), min_size=1, max_size=5)):
        maker.node(kind)
    return maker.graph()
