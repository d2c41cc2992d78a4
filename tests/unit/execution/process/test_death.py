"""A death says which worker it was, how it ended, why, and what it wrote last."""

import signal

import pytest

from naiad.execution.process.life.death import Death, Ending, Kill, WorkerIdentity, death_of

IDENTITY = WorkerIdentity("fragile", "1", "fragile_0_0")
HEAD = "the worker process of model 'fragile' (fragile_0_0), pid 4711,"


def ending(returncode: int, kill: Kill | None = None, is_starved: bool = False, tail: str = "") -> Ending:
    return Ending(4711, returncode, kill, is_starved, tail)


@pytest.mark.parametrize(
    ("end", "death"),
    [
        pytest.param(ending(0), Death("exit", f"{HEAD} exited with code 0"), id="exit"),
        pytest.param(ending(3), Death("exit", f"{HEAD} exited with code 3"), id="exit with a code"),
        pytest.param(
            ending(-signal.SIGSEGV), Death("signal", f"{HEAD} was killed by SIGSEGV"), id="a signal is told by its name"
        ),
        pytest.param(ending(-62), Death("signal", f"{HEAD} was killed by signal 62"), id="a signal without a name"),
        pytest.param(ending(-signal.SIGKILL), Death("signal", f"{HEAD} was killed by SIGKILL"), id="SIGKILL of somebody"),
        pytest.param(
            ending(-signal.SIGKILL, Kill("hang", "execute took longer than 5 seconds")),
            Death("hang", f"{HEAD} was killed: execute took longer than 5 seconds"),
            id="SIGKILL of the server",
        ),
        pytest.param(
            ending(-signal.SIGKILL, is_starved=True),
            Death(
                "out_of_memory",
                f"{HEAD} was killed by SIGKILL, most likely by the kernel for lack of memory",
            ),
            id="SIGKILL of the kernel",
        ),
        pytest.param(
            ending(-signal.SIGKILL, Kill("hang", "slow"), is_starved=True),
            Death("hang", f"{HEAD} was killed: slow"),
            id="the server's SIGKILL isn't the kernel's",
        ),
        pytest.param(
            ending(7, Kill("hang", "slow")),
            Death("exit", f"{HEAD} exited with code 7"),
            id="what ended before the server's SIGKILL wasn't ended by it",
        ),
        pytest.param(
            ending(-signal.SIGSEGV, is_starved=True),
            Death("signal", f"{HEAD} was killed by SIGSEGV"),
            id="only SIGKILL is the kernel's for memory",
        ),
        pytest.param(
            ending(1, tail="Traceback:\nValueError: é"),
            Death("exit", f"{HEAD} exited with code 1; the end of its stderr:\nTraceback:\nValueError: é"),
            id="the end of stderr",
        ),
    ],
)
def test_a_death_says_how_and_why(end, death):
    assert death_of(end, IDENTITY) == death


@pytest.mark.parametrize("tail", ["", "one; the end of its stderr:\ntwo"])
def test_the_headline_is_without_the_end_of_stderr(tail):
    assert death_of(ending(1, tail=tail), IDENTITY).headline == f"{HEAD} exited with code 1"
