"""The log takes a worker's lines, a bounded number of them, and says what it left out."""

import io
import logging

import pytest

from naiad.execution.process.life.child.model_log import MAX_LINE, LineBudget, ModelLog
from naiad.observability.log_format import LineFormatter

BURST, PER_SECOND = 1000, 500


class Loop:
    """A loop whose time stands still; `turn` runs what was to be called soon."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list = []
        self.timers: list = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback):
        self.timers.append(callback)
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def run(self) -> None:
        while self.soon:
            self.turn()


@pytest.fixture
def lines(caplog) -> list[tuple[int, str]]:
    """Give what was logged so far, when called."""
    caplog.set_level(logging.DEBUG, "naiad.model")
    return lambda: [(record.levelno, record.message) for record in caplog.records]


def test_a_budget_gives_its_burst_and_then_so_much_a_second():
    budget = LineBudget(10, 4, 0.0)
    assert [budget.take(7, 0.0), budget.take(7, 0.0), budget.take(7, 0.0)] == [7, 3, 0]
    assert [budget.take(7, 1.0), budget.take(7, 1.5), budget.take(7, 1.5)] == [4, 2, 0]


def test_a_budget_holds_no_more_than_its_burst():
    budget = LineBudget(10, 4, 0.0)
    assert [budget.take(100, 1000.0), budget.take(100, 1000.0)] == [10, 0]


def test_each_line_has_the_prefix_and_the_level(lines):
    log = ModelLog("[m m_0] ", Loop())
    log.write_lines(logging.INFO, [b"one", "zwölf".encode()])
    log.write(logging.ERROR, "first\n  second\n")
    assert lines() == [
        (logging.INFO, "[m m_0] one"),
        (logging.INFO, "[m m_0] zwölf"),
        (logging.ERROR, "[m m_0] first"),
        (logging.ERROR, "[m m_0]   second"),
    ]


def test_bytes_that_arent_utf_8_are_replaced(lines):
    ModelLog("", Loop()).write_lines(logging.INFO, [b"a\xff\xfeb"])
    assert lines() == [(logging.INFO, "a\ufffd\ufffdb")]


def test_a_percent_sign_is_no_format(lines):
    ModelLog("%s ", Loop()).write(logging.INFO, "100% %d")
    assert lines() == [(logging.INFO, "%s 100% %d")]


def test_a_long_line_is_cut_into_pieces(lines):
    ModelLog("", Loop()).write(logging.INFO, "x" * (2 * MAX_LINE + 1))
    assert [len(text) for _, text in lines()] == [MAX_LINE, MAX_LINE, 1]


def test_many_lines_are_written_over_many_turns_in_their_order(lines):
    loop = Loop()
    log = ModelLog("", loop)
    log.write_lines(logging.INFO, [b"%d" % number for number in range(100)])
    log.write(logging.WARNING, "100")
    counts = [len(lines())]
    while loop.soon:
        loop.turn()
        counts.append(len(lines()))
    assert counts == [40, 80, 101]
    assert [text for _, text in lines()] == [str(number) for number in range(101)]


def test_lines_beyond_the_budget_are_left_out_and_counted(lines):
    loop = Loop()
    log = ModelLog("p ", loop)
    log.write_lines(logging.INFO, [b"x"] * (BURST + 7))
    log.write(logging.ERROR, "yy\nyy")
    loop.run()
    assert len(lines()) == BURST
    assert len(loop.timers) == 1
    loop.timers[0]()
    limits = f"the log takes {BURST} lines at once and {PER_SECOND} a second from a worker"
    assert lines()[BURST:] == [(logging.WARNING, f"p 9 more lines (20 bytes) were left out: {limits}")]


def test_a_line_of_a_level_that_is_off_costs_nothing_of_the_budget(caplog):
    caplog.set_level(logging.WARNING, "naiad.model")
    loop = Loop()
    log = ModelLog("", loop)
    log.write_lines(logging.INFO, [b"x"] * 5 * BURST)
    log.write_lines(logging.WARNING, [b"y"] * BURST)
    loop.run()
    assert caplog.messages == ["y"] * BURST


def test_time_gives_room_for_more(lines):
    loop = Loop()
    log = ModelLog("", loop)
    log.write_lines(logging.INFO, [b"x"] * BURST)
    loop.now_s += 0.5
    log.write_lines(logging.INFO, [b"y"] * BURST)
    loop.run()
    assert sum(text == "y" for _, text in lines()) == PER_SECOND // 2


def test_each_left_out_line_is_told_once(lines):
    loop = Loop()
    log = ModelLog("", loop)
    log.write_lines(logging.INFO, [b"x"] * (BURST + 1))
    loop.run()
    loop.timers.pop()()
    log.write_lines(logging.INFO, [b"x"] * 2)
    loop.timers.pop()()
    assert [text.split(" more")[0] for level, text in lines() if level == logging.WARNING] == ["1", "2"]


def test_a_line_cant_forge_another_one_or_steer_a_terminal():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(LineFormatter("default"))
    logger = logging.getLogger("naiad.model")
    logger.addHandler(handler)
    try:
        ModelLog("", Loop()).write_lines(logging.WARNING, [b"a\x1b[2Jb\rE0101 c\x00\xc2\x85"])
    finally:
        logger.removeHandler(handler)
    assert out.getvalue().split("] ", 1)[1] == "a\\u001b[2Jb\\rE0101 c\\u0000\\u0085\n"
