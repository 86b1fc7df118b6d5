"""The link against the real C code on the host: every command, every refusal."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from link_device import HostDevice

from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import RefusedError
from rlx_edge.device.protocol import Command, ModelInfo, Status, TensorInfo
from rlx_edge.errors import DataError, DeviceError

IMAGE = bytes((i * 7 + 3) & 0xFF for i in range(100_000))


@pytest.fixture(scope="module", params=[128, 1024])
def device(request: pytest.FixtureRequest) -> Iterator[HostDevice]:
    with HostDevice(payload=request.param) as device:
        yield device


@pytest.fixture
def link(device: HostDevice) -> Iterator[Link]:
    with Link.open(device.port, 1_000_000) as link:
        yield link


def chain_inputs(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "x": random.integers(-128, 128, (15, 100), dtype=np.int8),
        "b": random.integers(-128, 128, 4, dtype=np.int8),
    }


def chain_tensors(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    t0 = inputs["x"] + inputs["b"][0]
    t1 = t0 * np.int8(3)
    return {"t0": t0, "t1": t1, "out": np.int32(t1.sum(dtype=np.int32))}


def refusal(call: object, *arguments: object) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    return caught.value


def test_hello_tells_about_the_device(link: Link) -> None:
    hello = link.hello()
    assert hello.device == "host"
    assert hello.version == 3
    assert hello.max_payload in (128, 1024)
    assert hello.reset_reason == 1
    assert hello.model_count == 6
    assert (hello.image_bytes, hello.image_crc) == (len(IMAGE), zlib.crc32(IMAGE))
    assert hello.count_hz == 1_000_000_000


def test_models_and_tensors_are_described(link: Link) -> None:
    chain = link.model("chain")
    assert (chain.steps, chain.arena_bytes, chain.weights_ok, chain.variable_input) == (3, 3040, True, False)
    assert chain.ident == "chain tflm host 00"
    assert chain.hash == "010203" + "00" * 13
    assert [tensor.name for tensor in chain.tensors] == ["x", "b", "t0", "t1", "out"]
    assert [tensor.name for tensor in chain.inputs] == ["x", "b"]
    x, _, t0, _, out = chain.tensors
    assert (x.shape, x.dtype, x.step, x.scale, x.zero_point) == ((15, 100), np.int8, None, 0.5, -3)
    assert (t0.step, out.step, out.output, out.dtype) == (0, 2, 0, np.dtype("<i4"))
    assert [(layer.op, layer.macs) for layer in link.layers(chain)] == [
        ("Add", 300000),
        ("Mul", 1500),
        ("Reduce", 1500),
    ]


def test_outputs_keep_the_models_order_and_long_names_are_cut(link: Link) -> None:
    other = link.model("other")
    assert [tensor.index for tensor in other.outputs] == [2, 1]
    long = other.tensors[1]
    assert long.name_cut
    assert long.name.startswith("a_name_that_is_far_longer_than")
    assert long.matches(long.name + "... the rest")
    assert link.layers(other)[0].op == "Transpose"


def test_a_run_computes_what_it_should(link: Link) -> None:
    chain = link.model("chain")
    for seed in range(3):
        inputs = chain_inputs(seed)
        link.write_inputs(chain, inputs)
        assert link.run(chain) > 0
        assert link.read_outputs(chain)["out"][0] == chain_tensors(inputs)["out"]


def test_every_tensor_can_be_read_after_its_step(link: Link) -> None:
    chain = link.model("chain")
    inputs = chain_inputs()
    expected = chain_tensors(inputs)
    link.write_inputs(chain, inputs)
    np.testing.assert_array_equal(link.read_tensor(chain, chain.tensors[0]), inputs["x"])
    for step, name in enumerate(["t0", "t1"]):
        link.step(chain, step)
        np.testing.assert_array_equal(link.read_tensor(chain, chain.tensors[2 + step]), expected[name])
    assert refusal(link.read_tensor, chain, chain.tensors[0]).status is Status.NOT_READY
    assert refusal(link.read_tensor, chain, chain.tensors[2]).status is Status.NOT_READY
    link.run(chain)  # the rest
    assert link.read_outputs(chain)["out"][0] == expected["out"]


def rows_tensors(x: np.ndarray) -> dict[str, np.ndarray]:
    inner = x + np.int8(1)
    joined = inner + np.concatenate([np.zeros((1, 8), np.int8), inner[:-1]])
    return {"inner": inner, "joined": joined, "total": joined.sum(dtype=np.int32)[None]}


def rows_model(link: Link) -> tuple[ModelInfo, dict[str, TensorInfo], np.ndarray]:
    rows = link.model("rows")
    x = np.random.default_rng(5).integers(-128, 128, (4, 8), dtype=np.int8)
    link.write_inputs(rows, {"x": x})
    return rows, {tensor.name: tensor for tensor in rows.tensors}, x


def test_a_stage_shows_each_row_before_it_is_overwritten(link: Link) -> None:
    rows, tensors, x = rows_model(link)
    expected = rows_tensors(x)
    stage, last = link.layers(rows)
    assert (stage.op, stage.rows, last.rows) == ("Stage", 8, 0)
    assert (tensors["inner"].rows, tensors["joined"].rows) == (4, 0)
    made = link.step_rows(rows, stage)
    np.testing.assert_array_equal(made[tensors["inner"].index], expected["inner"])
    np.testing.assert_array_equal(link.read_tensor(rows, tensors["joined"]), expected["joined"])
    assert refusal(link.read_tensor, rows, tensors["inner"]).status is Status.NOT_READY
    link.step(rows, 1)
    np.testing.assert_array_equal(link.read_tensor(rows, tensors["total"]), expected["total"])


def test_a_run_finishes_a_stage_that_was_begun(link: Link) -> None:
    rows, tensors, x = rows_model(link)
    stage = replace(link.layers(rows)[0], rows=3)
    link.step_rows(rows, stage)
    assert refusal(link.step_rows, rows, stage).status is Status.BAD_STEP
    assert refusal(link.read_tensor, rows, tensors["joined"]).status is Status.NOT_READY
    link.run(rows)
    np.testing.assert_array_equal(link.read_outputs(rows)["total"], rows_tensors(x)["total"])


def test_only_stages_run_by_rows(link: Link) -> None:
    chain = link.model("chain")
    link.write_inputs(chain, chain_inputs())
    assert refusal(link.step_rows, chain, replace(link.layers(chain)[0], rows=1)).status is Status.BAD_STEP
    link.step(chain, 0)


def test_what_lies_in_a_tensors_place_can_be_read(link: Link) -> None:
    chain = link.model("chain")
    inputs = chain_inputs()
    link.write_inputs(chain, inputs)
    link.step(chain, 0)
    link.step(chain, 1)
    t0 = chain.tensors[2]
    assert refusal(link.read_tensor, chain, t0).status is Status.NOT_READY
    np.testing.assert_array_equal(link.read_tensor(chain, t0, as_it_is=True), chain_tensors(inputs)["t0"])


def test_the_firmware_in_flash_can_be_read(link: Link) -> None:
    link.hello()
    assert link.read_image(98_000, 2_000) == IMAGE[98_000:]
    assert refusal(link.read_image, 99_999, 2).status is Status.BAD_RANGE
    assert refusal(link.read_image, 0xFFFFFFFF, 1).status is Status.BAD_RANGE


def test_the_chip_tells_its_unique_number(link: Link) -> None:
    assert link.uid() == "112233445566778899aabbcc"


def test_a_run_uses_up_its_input(link: Link) -> None:
    chain = link.model("chain")
    link.write_inputs(chain, chain_inputs())
    link.run(chain)
    assert refusal(link.run, chain).status is Status.NO_INPUT
    link.write_input(chain, chain.tensors[0], chain_inputs()["x"])
    error = refusal(link.run, chain)
    assert (error.status, error.detail) == (Status.NO_INPUT, 1)
    assert "input 1 is not complete" in str(error)


def test_hello_forgets_the_input(link: Link) -> None:
    chain = link.model("chain")
    link.write_inputs(chain, chain_inputs())
    link.hello()
    assert refusal(link.run, link.model("chain")).status is Status.NO_INPUT


def test_writes_leave_no_gaps(link: Link) -> None:
    """Coverage counts contiguous bytes from 0: neither a repeated range nor a skipped one completes an input."""
    chain = link.model("chain")
    link.clear(chain)
    link.write_input(chain, chain.tensors[1], chain_inputs()["b"])

    def write(offset: int, size: int) -> None:
        payload = bytes([0, 0, 0, 0]) + offset.to_bytes(4, "little") + bytes(size)
        link._ask(Command.WRITE, payload, "testing")

    write(0, 100)
    error = refusal(write, 101, 100)
    assert (error.status, error.detail) == (Status.GAP, 100)
    for _ in range(20):
        write(50, 100)
    assert refusal(link.run, chain).status is Status.NO_INPUT
    for offset in range(150, 1500, 90):
        write(offset, 90)
    link.run(chain)


@pytest.mark.parametrize(("offset", "size"), [(1500, 1), (1499, 2), (0xFFFFFFFF, 1), (0xFFFFFFF0, 16), (1501, 0)])
def test_writes_beyond_the_tensor_are_refused(link: Link, offset: int, size: int) -> None:
    payload = bytes([0, 0, 0, 0]) + offset.to_bytes(4, "little") + bytes(size)
    error = refusal(link._ask, Command.WRITE, payload, "testing")
    assert (error.status, error.detail) == (Status.BAD_RANGE, 1500)


def test_only_variable_inputs_end_early(link: Link) -> None:
    chain, variable = link.model("chain"), link.model("bytes")
    early = bytes([chain.index, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3])
    assert refusal(link._ask, Command.WRITE, early, "testing").status is Status.BAD_RANGE
    data = np.array([5, 0, 1, 2, 3, 4, 100], np.int8)
    link.write_input(variable, variable.inputs[0], data)
    link.run(variable)
    assert link.read_outputs(variable)["sum"][0] == 110
    with pytest.raises(DataError, match=r"input 'x' takes int8 of shape \(15, 100\), not int8 of shape \(7,\)"):
        link.write_input(chain, chain.inputs[0], data)


def test_models_share_the_arena(link: Link) -> None:
    chain, other = link.model("chain"), link.model("other")
    link.write_inputs(chain, chain_inputs())
    link.run(chain)
    link.write_inputs(other, {"x": np.arange(8, dtype=np.int8)})
    assert refusal(link.read_outputs, chain).status is Status.NOT_READY
    link.run(other)
    outputs = link.read_outputs(other)
    np.testing.assert_array_equal(next(iter(reversed(outputs.values()))), np.arange(8)[::-1])


def test_state_lives_until_the_model_is_cleared(link: Link) -> None:
    other = link.model("other")
    link.clear(other)
    counts = []
    for _ in range(3):
        link.write_inputs(other, {"x": np.zeros(8, np.int8)})
        link.run(other)
        counts.append(int(link.read_outputs(other)["count"][0]))
    link.clear(other)
    link.write_inputs(other, {"x": np.zeros(8, np.int8)})
    link.run(other)
    counts.append(int(link.read_outputs(other)["count"][0]))
    assert counts == [1, 2, 3, 1]


def test_steps_run_in_order(link: Link) -> None:
    chain = link.model("chain")
    link.write_inputs(chain, chain_inputs())
    error = refusal(link.step, chain, 1)
    assert (error.status, error.detail) == (Status.BAD_STEP, 0)
    link.step(chain, 0)
    assert refusal(link.step, chain, 0).status is Status.BAD_STEP
    link.step(chain, 1)
    link.step(chain, 2)
    assert refusal(link.step, chain, 3).status is Status.NO_INPUT


def test_a_model_that_needs_more_arena_is_refused(link: Link) -> None:
    huge = link.model("huge")
    assert refusal(link.write_inputs, huge, {"how": np.zeros(1, np.int8)}).status is Status.NO_ARENA
    assert refusal(link.clear, huge).status is Status.NO_ARENA


@pytest.mark.parametrize(
    ("command", "payload", "status"),
    [
        ("MODEL", b"\x06", Status.BAD_MODEL),
        ("MODEL", b"", Status.BAD_LENGTH),
        ("TENSOR", b"\x00\x00\x05\x00", Status.BAD_TENSOR),
        ("TENSOR", b"\xff\x00\x00\x00", Status.BAD_MODEL),
        ("LAYER", b"\x00\x00\x00\x00\x03\x00\x00\x00", Status.BAD_STEP),
        ("WRITE", b"\x00\x00\x02\x00\x00\x00\x00\x00\x01", Status.BAD_TENSOR),
        ("WRITE", b"\x00\x00\x00", Status.BAD_LENGTH),
        ("READ", b"\x00\x00\x00\x00\xdd\x05\x00\x00\x01\x00", Status.BAD_RANGE),
        ("READ", b"\x00\x00\x00\x00\xff\xff\xff\xff\x02\x00", Status.BAD_RANGE),
        ("READ", b"\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00", Status.BAD_TENSOR),
        ("RUN", b"\x09", Status.BAD_MODEL),
        ("STEP", b"\x00", Status.BAD_LENGTH),
    ],
)
def test_bad_requests_are_refused(link: Link, command: str, payload: bytes, status: Status) -> None:
    assert refusal(link._ask, Command[command], payload, "testing").status is status


def test_ping_returns_what_was_sent(link: Link) -> None:
    payload = bytes(range(256))[: link.device.max_payload] * (link.device.max_payload // 256 or 1)
    assert link.ping(payload) == payload
    assert link.ping() == b""


def test_profile_gives_every_step(link: Link) -> None:
    steps = link.profile(link.model("chain"), chain_inputs())
    assert [step.layer.op for step in steps] == ["Add", "Mul", "Reduce"]
    assert all(step.ticks > 0 for step in steps)
    assert [step.stack_bytes for step in steps] == [100, 100, 100]


def test_reset_starts_the_device_anew(link: Link) -> None:
    before = link.hello()
    after = link.reset()
    assert after.boot_id != before.boot_id
    assert after.reset_reason == 3


def test_wrong_inputs_are_named(link: Link) -> None:
    chain = link.model("chain")
    with pytest.raises(DataError, match="no data for input 'b'; the model's inputs are 'x', 'b'"):
        link.write_inputs(chain, {"x": np.zeros((15, 100), np.int8)})
    with pytest.raises(DataError, match="takes int8 of shape"):
        link.write_inputs(chain, {"x": np.zeros((15, 100), np.uint8), "b": np.zeros(4, np.int8)})
    with pytest.raises(DeviceError, match="no model 'nothing'; it has: chain, other"):
        link.model("nothing")


def test_a_port_without_extras_still_serves_models() -> None:
    with HostDevice(bare=True) as device, Link.open(device.port, 1_000_000) as link:
        hello = link.hello()
        assert (hello.device, hello.image_bytes, hello.count_hz, hello.boot_id) == ("", 0, 0, 0)
        chain = link.model("chain")
        inputs = chain_inputs()
        link.write_inputs(chain, inputs)
        assert link.run(chain) == 0
        assert link.read_outputs(chain)["out"][0] == chain_tensors(inputs)["out"]
        assert [step.stack_bytes for step in link.profile(chain)] == [0, 0, 0]
        with pytest.raises(RefusedError, match="does not offer that"):
            link.reset()
