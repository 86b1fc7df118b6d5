"""A line that damages what passes: the answers stay right, or a clear error comes in bounded time."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator

import numpy as np
import pytest
from link_device import BadLine, HostDevice

from rlx_edge.device.device_text import LINE_CHARACTERS, LINES_PER_REQUEST
from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import NoAnswerError


@pytest.fixture
def device() -> Iterator[HostDevice]:
    with HostDevice(payload=1024) as device:
        yield device


@pytest.mark.parametrize("kind", BadLine.KINDS)
def test_answers_stay_right(device: HostDevice, kind: str) -> None:
    numbers = np.random.default_rng(1)
    with Link.open(device.port, 4_000_000, on_text=lambda line: None) as link:
        chain = link.model("chain")
        device.wire.line = line = BadLine(kind, seed=2)
        counts = []
        for _ in range(4):
            inputs = {
                "x": numbers.integers(-128, 128, (15, 100), dtype=np.int8),
                "b": numbers.integers(-128, 128, 4, dtype=np.int8),
            }
            link.write_inputs(chain, inputs)
            link.run(chain)
            total, count = link.read_outputs(chain)["out"]
            assert total == ((inputs["x"] + inputs["b"][0]) * np.int8(3)).sum(dtype=np.int32)
            counts.append(int(count))
        assert counts == [1, 2, 3, 4], "a run was executed more or less than once"
        assert line.damaged > 0


def test_a_line_that_loses_everything_ends_in_time(device: HostDevice) -> None:
    with Link.open(device.port, 1_000_000, timeout=0.7) as link:
        link.hello()
        device.wire.line = lambda to_device, data: []
        started = time.monotonic()
        with pytest.raises(
            NoAnswerError, match=r"no answer within 0\.7 s while pinging the device, though the device answered"
        ):
            link.ping()
        assert time.monotonic() - started < 1.5


def test_a_line_of_nothing_but_noise_ends_in_time(device: HostDevice) -> None:
    noise = random.Random(3)
    with Link.open(device.port, 1_000_000, timeout=0.7, on_text=lambda line: None) as link:

        def noisy(to_device: bool, data: bytes) -> list[bytes]:
            device.wire.send_to_computer(noise.randbytes(200))
            return []

        device.wire.line = noisy
        started = time.monotonic()
        with pytest.raises(
            NoAnswerError, match="bytes came, but no frames, while saying hello: is the baud rate 1000000"
        ):
            link.hello()
        assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("flood", [b"x" * 3000, b"words\n" * 500])
def test_a_flood_of_text_is_cut(device: HostDevice, flood: bytes) -> None:
    words: list[str] = []
    with Link.open(device.port, 1_000_000, timeout=0.7, on_text=words.append) as link:

        def flooding(to_device: bool, data: bytes) -> list[bytes]:
            device.wire.send_to_computer(flood)
            return []

        device.wire.line = flooding
        with pytest.raises(NoAnswerError, match="bytes came, but no frames"):
            link.hello()
    assert len(words) <= LINES_PER_REQUEST + 1
    assert max(map(len, words)) < LINE_CHARACTERS + 50
    assert re.search(r"\(… [\d,]{5,} more bytes of text\)$", words[-1])


def test_the_link_recovers_when_the_line_does(device: HostDevice) -> None:
    with Link.open(device.port, 1_000_000, timeout=0.5) as link:
        link.hello()
        device.wire.line = lambda to_device, data: []
        with pytest.raises(NoAnswerError):
            link.ping()
        device.wire.line = lambda to_device, data: [data]
        assert link.ping(b"back") == b"back"


def test_a_lost_reply_to_a_run_is_asked_for_again(device: HostDevice) -> None:
    """The run's BUSY frame arrives and its reply does not: the computer waits, asks again and gets the kept reply."""
    with Link.open(device.port, 1_000_000) as link:
        other = link.model("other")
        link.clear(other)
        link.write_inputs(other, {"x": np.zeros(8, np.int8)})
        replies = []

        def lose_first_reply(to_device: bool, data: bytes) -> list[bytes]:
            if to_device or replies:
                return [data]
            end_of_busy = data.index(b"\0", 1) + 1
            replies.append(data[end_of_busy:])
            return [data[:end_of_busy]]

        device.wire.line = lose_first_reply
        started = time.monotonic()
        link.run(other)
        assert time.monotonic() - started < 7
        assert link.read_outputs(other)["count"][0] == 1
