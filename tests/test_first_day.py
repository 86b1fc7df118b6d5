"""What a newcomer meets on the first day: one line each, which docs/first-day.md quotes."""

from __future__ import annotations

import pytest
from first_day_faults import FIRST_DAY, data_file, model_file
from flash_bench import ST_LINK, Builds, Desk
from flash_faults import Fault, row, serial_port
from message_table import MessageTable
from models import samples, tiny_model

TABLE = MessageTable("first-day.md", "test_first_day.py")


@pytest.fixture(scope="module")
def messages() -> dict[Fault, str]:
    return {}


@pytest.mark.parametrize("fault", FIRST_DAY, ids=lambda fault: fault.name)
def test_the_line_names_cause_and_command(
    fault: Fault, desk: Desk, builds: Builds, messages: dict[Fault, str], request: pytest.FixtureRequest
) -> None:
    said = fault.say(desk, builds)
    assert fault.words in said
    assert "\n" not in said
    messages[fault] = said
    if not request.config.getoption("--update-golden"):
        assert row(fault, said) in TABLE.rows, "run pytest tests/test_first_day.py --update-golden"


def test_the_page_shows_no_others(messages: dict[Fault, str], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        assert len(messages) == len(FIRST_DAY), "run the whole file"
        TABLE.write("".join(row(fault, messages[fault]) for fault in FIRST_DAY))
    assert TABLE.rows.count("\n") == len(FIRST_DAY)


def test_deploy_writes_to_a_connected_board_first(desk: Desk) -> None:
    """Here its tool is missing, which is noticed before anything is compared."""
    desk.all_tools()
    model, data = model_file(desk, tiny_model()), data_file(desk, samples(tiny_model(), 1)["x"][:, 0])
    with serial_port() as (port, _):
        desk.plug((ST_LINK, "066AFF5051", port))
        desk.without("openocd")
        words = ("deploy", model, "--data", data, "--board", "nucleo-f446re")
        assert "openocd is not there: install it" in desk.run(*words)[2]
        code, _, said = desk.run(*words, "--no-flash")
    assert code == 2
    assert "no answer within" in said and "openocd" not in said
