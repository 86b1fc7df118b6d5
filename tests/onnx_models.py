"""Small ONNX models for tests, and onnxruntime as the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.shape_inference
import pytest
from onnx import helper, numpy_helper

from rlx_edge.ir import Array


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A float32 model; a size given as text is symbolic."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in (constants or {}).items()],
    )
    foreign = sorted({node.domain for node in nodes if node.domain})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in foreign)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)  # Gives the outputs their shapes.
    for value in model.graph.output:
        value.type.tensor_type.shape.SetInParent()  # An unsupported op's: any shape will do.
    return model


def run_oracle(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """The model's outputs as onnxruntime computes them, without its graph optimizations."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def random_array(shape: Sequence[int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
