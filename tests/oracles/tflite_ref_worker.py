"""Runs in the virtual environment that has tflite-runtime (numpy < 2, Python < 3.12); see tflite_ref.py.

Requests on stdin and answers on stdout are npz files, each after its length in 8 little-endian bytes. A request with
`model` (bytes) loads it; `in0`, `in1` ... are inputs. The answer holds `out0`, `out1` ..., or `error`.
"""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tflite_runtime.interpreter import Interpreter, OpResolverType

Array = NDArray[np.generic]


def load(model: bytes) -> Interpreter:
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    return interpreter


def invoke(interpreter: Interpreter, request: Mapping[str, Array]) -> dict[str, Any]:
    for position, detail in enumerate(interpreter.get_input_details()):
        interpreter.set_tensor(detail["index"], request[f"in{position}"])
    interpreter.invoke()
    outputs = interpreter.get_output_details()
    return {f"out{i}": interpreter.get_tensor(detail["index"]) for i, detail in enumerate(outputs)}


def main() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    interpreter = None
    while header := source.read(8):
        request = np.load(io.BytesIO(source.read(struct.unpack("<Q", header)[0])))
        try:
            if "model" in request:
                interpreter = load(request["model"].tobytes())
            answer = invoke(interpreter, request)
        except (RuntimeError, ValueError) as error:
            answer = {"error": np.array(str(error))}
        packed = io.BytesIO()
        np.savez(packed, **answer)
        sink.write(struct.pack("<Q", len(packed.getvalue())) + packed.getvalue())
        sink.flush()


if __name__ == "__main__":
    main()
