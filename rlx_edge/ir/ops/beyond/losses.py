"""Cross-entropy of a softmax, of each row by itself: what a loss reduces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.beyond.needs import require_dtype, require_like
from rlx_edge.ir.ops.checks import require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Op):
    """Operands logits, targets [N, C], rows of probabilities: -sum over c of targets * log_softmax(logits), [N]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "sce"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        logits, targets = operands
        require_like("targets", targets, "logits", logits)
        return require_rank("logits", logits, 2)[:1], require_floats(operands)


@dataclass(frozen=True)
class SoftmaxCrossEntropyWithLogits(Op):
    """Operands logits [N, C], labels [N] (f32, indices of classes): -log(softmax(logits)[label]), [N]."""

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "sce_with_logits"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        logits, labels = operands
        _check_labels(logits, labels)
        return labels.shape, require_floats([logits])


@dataclass(frozen=True)
class SoftmaxCrossEntropyBackward(Op):
    """Operands logits [N, C], labels [N], d_loss [N]: the gradient of SoftmaxCrossEntropyWithLogits for logits."""

    operand_count: ClassVar[Arity] = exact(3)
    text: ClassVar[str] = "sce_backward"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        logits, labels, d_loss = operands
        _check_labels(logits, labels)
        require_shape("d_loss", d_loss, labels.shape)
        return logits.shape, require_floats([logits, d_loss])


def _check_labels(logits: TensorType, labels: TensorType) -> None:
    require_shape("labels", labels, require_rank("logits", logits, 2)[:1])
    require_dtype("labels", labels, DType.F32)


KINDS: tuple[type[Op], ...] = (SoftmaxCrossEntropy, SoftmaxCrossEntropyWithLogits, SoftmaxCrossEntropyBackward)
