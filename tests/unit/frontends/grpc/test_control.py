"""The RPCs that ask and set, by their handlers: what protobuf can't hold is escaped or refused, never a fault of the server."""

from __future__ import annotations

import asyncio

import pytest
from fake_service import FakeService

from naiad.errors import Code, InferenceServerError
from naiad.frontends.grpc.rpc import control
from naiad.proto import message_class
from naiad.request.service import IndexEntry


def test_names_that_are_no_unicode_are_shown_with_escapes() -> None:
    service = FakeService()
    service.index = [IndexEntry("m\udcff", "", "UNAVAILABLE", "no file \udcfe")]
    answer = asyncio.run(control.index(service, message_class("inference.RepositoryIndexRequest")()))
    assert (answer.models[0].name, answer.models[0].reason) == ("m\\udcff", "no file \\udcfe")


def test_log_settings_that_protobuf_cant_hold_are_shown_as_near_as_it_can() -> None:
    service = FakeService()
    service.logs.update(log_file="/tmp/\udcff", log_verbose_level=2**40)
    answer = control.log_settings(service, message_class("inference.LogSettingsRequest")())
    assert answer.settings["log_file"].string_param == "/tmp/\\udcff"
    assert answer.settings["log_verbose_level"].uint32_param == 2**32 - 1
    assert answer.settings["log_info"].bool_param


def test_a_repository_name_and_a_log_setting_of_a_wrong_kind_are_refused() -> None:
    request = message_class("inference.RepositoryIndexRequest")(repository_name="r")
    with pytest.raises(InferenceServerError, match="'repository_name'") as raised:
        asyncio.run(control.index(FakeService(), request))
    assert raised.value.code is Code.UNIMPLEMENTED
    settings = message_class("inference.LogSettingsRequest")()
    settings.settings["log_info"].string_param = "yes"
    with pytest.raises(InferenceServerError, match="'log_info' has invalid type string_param, it must be bool_param"):
        control.log_settings(FakeService(), settings)
