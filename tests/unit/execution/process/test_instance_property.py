"""Whatever happens to an instance in whatever order: each request ends once, each run is given back once, no block is kept."""

from __future__ import annotations

import orjson
from event_loops import run_on_asyncio
from fake_worker import Bench, small_arena, xy_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.errors import internal
from naiad.execution.process.context import WorkerLimits
from naiad.memory.arena import ArenaLimits
from naiad.worker.frames import FLAG_FAILED, Frame, Kind

LARGE = 1 << 19  # So many FP32 are copied by a thread.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["submit", "submit", "large", "answer", "answer", "fail", "lie", "respond", "copy", "cancel", "die", "up", "no"]
        ),
        st.integers(0, 30),
    ),
    max_size=40,
)


class History:
    """The requests and runs so far, and what the worker has to do."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.probes: list = []
        self.runs = 0
        self.todo: list[Frame] = []
        self.streams: list[int] = []

    def apply(self, event: str, which: int) -> None:
        bench = self.bench
        is_up = bench.instance._process is not None
        if event in ("submit", "large") and bench.owner.states[-1] == "up" and len(bench.done) == self.runs:
            self._submit(which, LARGE if event == "large" else 40 * (1 + which))
        elif event == "copy":
            bench.pool.run()
        elif event == "cancel" and which < len(self.probes):
            self.probes[which].request.cancel()
        elif event == "die" and is_up:
            self._die()
        elif event == "up" and not is_up:
            bench.revive()
        elif event == "no" and not is_up:
            bench.fail_start(internal("no start"))
        elif event in ("answer", "fail", "lie", "respond") and is_up:
            self._work(event, which)

    def _submit(self, which: int, size: int) -> None:
        groups = [[self.bench.probe(size=size) for _ in range(1 + which % 2)] for _ in range(1 + which % 3)]
        self.probes += [probe for group in groups for probe in group]
        self.runs += 1
        self.bench.submit_run(*groups)

    def _work(self, event: str, which: int) -> None:
        process = self.bench.process
        self.todo += process.take(Kind.EXECUTE)
        if event == "respond" and self.streams:
            process.respond(self.streams.pop(0), 1 if which % 2 else None, is_final=True)
        elif self.todo and event != "respond":
            execute = self.todo.pop(0)
            if event == "lie":
                process.push(Kind.RESULT, execute.id, [which], value=1)
                self._die()
            elif event == "fail":
                process.returned(execute, flags=FLAG_FAILED, message={"error": ["INTERNAL", "x"]})
            elif self.bench.plan.is_decoupled:
                self.streams += range(execute.id, execute.id + len(orjson.loads(execute.tail)))
                process.returned(execute, value=1 + which * 10**5)
            else:
                process.answer(execute, size=1, value=1 + which * 10**5)

    def _die(self) -> None:
        self.bench.process.die()
        self.todo, self.streams = [], []

    def end(self) -> None:
        """Let a worker that does its work end everything."""
        bench = self.bench
        bench.pool.run()
        if bench.instance._process is None:
            bench.revive()
        for _ in range(1000):
            bench.pool.run()
            self.todo += bench.process.take(Kind.EXECUTE)
            if not (self.todo or self.streams):
                break
            self._work("respond" if self.streams else "answer", 1)
        assert bench.process.broken == []


@settings(max_examples=150)
@given(EVENTS, st.booleans(), st.booleans(), st.booleans())
def test_each_request_ends_once_and_each_run_is_given_back_once(events, is_decoupled, retries, is_small):
    async def run() -> None:
        arena = small_arena(1 << 14) if is_small else ArenaLimits(limit_bytes=64 << 20)
        bench = Bench(xy_plan(is_decoupled=is_decoupled), WorkerLimits(retries_on_death=retries), arena)
        history = History(bench)
        for event, which in events:
            history.apply(event, which)
            assert all(probe.end_count <= 1 for probe in history.probes)
            assert len(bench.done) <= history.runs
        history.end()
        assert [1] * len(history.probes) == [probe.end_count for probe in history.probes]
        assert (len(bench.done), bench.instance.open_count) == (history.runs, 0)
        assert bench.process.arena.block_count == 0
        await bench.instance.close()

    run_on_asyncio(run())
