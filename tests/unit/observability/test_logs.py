"""Setting logging up and changing it while the server runs."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from naiad.errors import Code, InferenceServerError
from naiad.observability.logs import LogSettings

LEVELS = {"verbose 2": 9, "verbose 1": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass
class Options:
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose: int = 0
    log_format: str = "default"
    log_file: str = ""


Install = Callable[..., LogSettings]


@pytest.fixture
def install() -> Iterator[Install]:
    made: list[LogSettings] = []

    def make(**options: Any) -> LogSettings:
        made.append(LogSettings.install(Options(**options)))
        return made[-1]

    yield make
    for settings in made:
        settings.close()


def written(path: Path) -> list[str]:
    """Log one message of each level; return those that arrive in the file."""
    before = len(path.read_text().splitlines())
    for name, level in LEVELS.items():
        logging.getLogger("naiad.test").log(level, name)
    return [line.split("] ")[1] for line in path.read_text().splitlines()[before:]]


def refusal(settings: LogSettings, changes: dict[str, Any]) -> InferenceServerError:
    with pytest.raises(InferenceServerError) as caught:
        settings.update(changes)
    return caught.value


def test_the_settings_have_the_names_and_order_of_the_logging_extension(install: Install) -> None:
    assert list(install(log_verbose=3, log_format="ISO8601").get().items()) == [
        ("log_file", ""),
        ("log_info", True),
        ("log_warning", True),
        ("log_error", True),
        ("log_verbose_level", 3),
        ("log_format", "ISO8601"),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["info", "warning", "error"]),
        ({"log_info": False}, ["warning", "error"]),
        ({"log_warning": False}, ["info", "error"]),
        ({"log_error": False}, ["info", "warning"]),
        ({"log_info": False, "log_warning": False, "log_error": False}, []),
        ({"log_verbose": 1}, ["verbose 1", "info", "warning", "error"]),
        ({"log_verbose": 2}, ["verbose 2", "verbose 1", "info", "warning", "error"]),
        ({"log_verbose": 1, "log_info": False}, ["verbose 1", "warning", "error"]),
        ({"log_verbose": 2**40, "log_error": False}, ["verbose 2", "verbose 1", "info", "warning"]),
    ],
)
def test_each_kind_of_message_is_switched_alone_at_the_start_and_later(
    install: Install, tmp_path: Path, options: dict[str, Any], expected: list[str]
) -> None:
    path = tmp_path / "log"
    install(log_file=str(path), **options)
    assert written(path) == expected
    settings = install(log_file=str(path))
    settings.update({name.replace("log_verbose", "log_verbose_level"): value for name, value in options.items()})
    assert written(path) == expected


def test_what_is_off_is_off_at_the_logger_so_that_it_costs_nothing(install: Install) -> None:
    install(log_info=False)
    assert not logging.getLogger("naiad.x").isEnabledFor(logging.INFO)
    install(log_info=False, log_warning=False, log_error=False)
    assert not logging.getLogger("naiad.x").isEnabledFor(logging.CRITICAL)


def test_a_log_file_is_appended_to(install: Install, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("what was there\n")
    install(log_file=str(path))
    logging.getLogger("naiad.x").info("next \udc80")
    first, second = path.read_text().splitlines()
    assert first == "what was there"
    assert second.endswith("] next \\udc80")


def test_without_a_file_lines_go_to_stderr(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install()
    logging.getLogger("naiad.x").warning("careful")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("W")
    assert captured.err.endswith(" test_logs.py:" + captured.err.rsplit(":", 1)[1])


def test_a_file_that_cannot_be_opened_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(
        InferenceServerError, match=r"--log-file is '.*none/log', which can't be opened: No such file"
    ) as caught:
        LogSettings.install(Options(log_file=str(tmp_path / "none" / "log")))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_second_install_takes_the_place_of_the_first(install: Install, tmp_path: Path) -> None:
    install(log_file=str(tmp_path / "first"))
    install(log_file=str(tmp_path / "second"))
    logging.getLogger("naiad.x").info("once")
    assert (tmp_path / "first").read_text() == ""
    assert len((tmp_path / "second").read_text().splitlines()) == 1


def test_the_root_logger_and_handlers_of_others_stay_as_they_are(install: Install) -> None:
    root, other = logging.getLogger(), logging.NullHandler()
    before = (list(root.handlers), root.level)
    logging.getLogger("naiad").addHandler(other)
    install().close()
    assert (list(root.handlers), root.level) == before
    assert other in logging.getLogger("naiad").handlers
    logging.getLogger("naiad").removeHandler(other)


def test_close_leaves_the_logger_as_it_was() -> None:
    logger = logging.getLogger("naiad")
    before = (list(logger.handlers), logger.propagate, logger.level)
    LogSettings.install(Options()).close()
    assert (list(logger.handlers), logger.propagate, logger.level) == before


def test_nothing_is_set_up_at_import() -> None:
    code = (
        "import logging, naiad.observability.logs;"
        "one = logging.getLogger('naiad');"
        "print(one.handlers, one.propagate, one.level, logging.getLogger().handlers)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True 0 []\n"


def test_members_that_are_none_stay_and_the_reply_is_all_settings(install: Install) -> None:
    settings = install(log_verbose=1)
    reply = settings.update({"log_file": None, "log_info": None, "log_verbose_level": None, "log_format": None})
    assert (
        reply == settings.get() == {**reply, "log_file": "", "log_info": True, "log_verbose_level": 1, "log_format": "default"}
    )


def test_the_format_changes_at_once(install: Install, tmp_path: Path) -> None:
    path = tmp_path / "log"
    settings = install(log_file=str(path))
    assert settings.update({"log_format": "ISO8601"})["log_format"] == "ISO8601"
    logging.getLogger("naiad.x").info("x")
    assert path.read_text()[10] == "T"


@pytest.mark.parametrize("value", ["other.log", "", 5])
def test_the_log_file_cannot_be_changed(install: Install, value: object) -> None:
    error = refusal(install(), {"log_file": value})
    assert error.code is Code.UNIMPLEMENTED
    assert "log_file" in error.message


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("log_info", 1, "true or false"),
        ("log_warning", "true", "true or false"),
        ("log_error", [], "true or false"),
        ("log_verbose_level", True, "a whole number >= 0"),
        ("log_verbose_level", -1, "a whole number >= 0"),
        ("log_verbose_level", 1.0, "a whole number >= 0"),
        ("log_verbose_level", "1", "a whole number >= 0"),
        ("log_format", "iso8601", "one of default, ISO8601"),
        ("log_format", ["default"], "one of default, ISO8601"),
    ],
)
def test_a_wrong_value_is_the_clients_fault_and_names_member_value_and_what_is_allowed(
    install: Install, name: str, value: object, allowed: str
) -> None:
    error = refusal(install(), {name: value})
    assert (error.code, error.message) == (Code.INVALID_ARGUMENT, f"{name} is {value!r}, must be {allowed}")


def test_a_member_that_is_not_known_is_refused(install: Install) -> None:
    error = refusal(install(), {"log_verbose": 1})
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message.startswith("log setting 'log_verbose' isn't known, must be one of log_file, log_info")


@pytest.mark.parametrize("changes", [{"x" * 10**6: 1}, {"log_format": "x" * 10**6}, {"log_info": [[]] * 10**6}])
def test_an_error_shows_only_the_beginning_of_what_is_long(install: Install, changes: dict[str, Any]) -> None:
    assert len(refusal(install(), changes).message) < 300


def test_one_wrong_member_changes_none_of_the_others(install: Install) -> None:
    settings = install()
    before = settings.get()
    refusal(settings, {"log_info": False, "log_verbose_level": -1})
    assert settings.get() == before
