"""The page at /docs in a real browser: what it shows, sends and asks for, and how it works without a mouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import browser as browsers
import model_folders
import onnx_models
import pytest
import requests
from browser import Page
from onnx import ModelProto, helper
from programs import need_program
from server_process import ServerProcess

pytestmark = pytest.mark.timeout(60)  # a browser's first start is slow on a busy machine

STRANGE = "a<b>&c"


def add_sub() -> ModelProto:
    inputs, outputs = (
        [onnx_models.value(name, "FP32", ["batch", 4]) for name in names] for names in ("AB", ("SUM", "DIFFERENCE"))
    )
    nodes = [helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"])]
    return onnx_models.model(nodes, inputs, outputs)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    need_program("chromium")
    repository = tmp_path_factory.mktemp("models")
    onnx_models.save(add_sub(), repository / "add_sub" / "1" / "model.onnx")
    model_folders.identity(repository, STRANGE)
    server = ServerProcess(repository).wait_ready()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.ClientConnection]:
    with browsers.running(need_program("chromium"), tmp_path_factory.mktemp("profile")) as connection:
        yield connection


@pytest.fixture
def page(browser: browsers.ClientConnection, server: ServerProcess) -> Iterator[Page]:
    """The page, when it has shown all that it shows by itself."""
    page = Page(browser).open(f"{server.url}/docs")
    for part in ("#endpoints-list details", "#schemas-list details", "#models-rows tr"):
        page.wait_for(f"document.querySelector('{part}') !== null")
    page.wait_for("document.getElementById('infer-body').value")
    yield page
    page.close()


def choose_add_sub(page: Page) -> None:
    page.evaluate("document.querySelector('[aria-label=\"Use add_sub version 1\"]').click()")
    page.wait_for("document.getElementById('infer-body').value.includes('\"A\"')")


def put_request(page: Page, body: object) -> None:
    page.evaluate(f"document.getElementById('infer-body').value = {json.dumps(json.dumps(body))}")


def answer(page: Page, place: str = "#infer-result") -> tuple[str, str]:
    """The status line and the text of an answer, when it is there."""
    page.wait_for(f"document.querySelector('{place} p') !== null")
    line = page.evaluate(f"document.querySelector('{place} p').textContent")
    return line.split(",")[0], page.evaluate(f"document.querySelector('{place} pre').textContent")


def tensor(name: str, data: list[float]) -> dict[str, object]:
    return {"name": name, "shape": [1, len(data)], "datatype": "FP32", "data": data}


def test_it_lists_every_endpoint_of_the_api(page: Page, server: ServerProcess) -> None:
    document = requests.get(f"{server.url}/openapi.json", timeout=10).json()
    described = {
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item if method != "parameters"
    }
    rows = "[...document.querySelectorAll('#endpoints-list summary')]"
    shown = page.evaluate(
        f"{rows}.map(row => `${{row.querySelector('.method').textContent}} ${{row.querySelector('code').textContent}}`)"
    )
    assert len(shown) == len(set(shown))
    assert set(shown) == described


def test_it_names_the_server_and_its_state(page: Page) -> None:
    assert page.wait_for("/, ready$/.test(document.getElementById('server').textContent)")


def test_it_lists_the_models_and_shows_their_names_as_text(page: Page) -> None:
    rows = page.evaluate("[...document.querySelectorAll('#models-rows tr')].map(row => row.querySelector('th').textContent)")
    assert rows == [STRANGE, "add_sub"]
    assert page.evaluate("document.querySelector('#models-rows th b')") is None


def test_a_get_can_be_tried_with_its_parameters(page: Page, server: ServerProcess) -> None:
    page.evaluate(f"""{{
        const send = document.querySelector('[aria-label="Send GET /v2/models/{{model}}/config"]');
        send.closest('details').open = true;
        send.form.elements.model.value = {json.dumps(STRANGE)};
        send.click();
        send.form.nextElementSibling.id = 'tried';
    }}""")
    status, text = answer(page, "#tried")
    assert status == "Status 200"
    assert json.loads(text) == requests.get(f"{server.url}/v2/models/a%3Cb%3E%26c/config", timeout=10).json()


def test_an_inference_gives_the_right_answer(page: Page) -> None:
    choose_add_sub(page)
    put_request(page, {"inputs": [tensor("A", [1, 2, 3, 4]), tensor("B", [10, 20, 30, 40])]})
    page.evaluate("document.getElementById('infer-form').requestSubmit()")
    status, text = answer(page)
    outputs = {output["name"]: output["data"] for output in json.loads(text)["outputs"]}
    assert (status, outputs) == ("Status 200", {"SUM": [11, 22, 33, 44], "DIFFERENCE": [-9, -18, -27, -36]})


def test_the_example_of_a_model_is_a_request_that_it_answers(page: Page) -> None:
    choose_add_sub(page)
    page.evaluate("document.getElementById('infer-form').requestSubmit()")
    assert answer(page)[0] == "Status 200"


def test_a_wrong_request_shows_what_the_server_says(page: Page) -> None:
    choose_add_sub(page)
    put_request(page, {"inputs": [tensor("A", [1, 2, 3, 4])]})
    page.evaluate("document.getElementById('infer-form').requestSubmit()")
    status, text = answer(page)
    assert status == "Status 400"
    assert "'B'" in json.loads(text)["error"]


def test_nothing_is_asked_of_other_servers_and_the_console_stays_empty(page: Page, server: ServerProcess) -> None:
    choose_add_sub(page)
    page.evaluate("document.getElementById('infer-form').requestSubmit()")
    answer(page)
    asked = [url for url in page.requests if not url.startswith("data:")]
    assert f"{server.url}/v2/models/add_sub/versions/1/infer" in asked
    assert [url for url in asked if not url.startswith(f"{server.url}/")] == []
    assert page.complaints == []


def test_an_inference_needs_no_mouse(page: Page) -> None:
    page.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.press("Enter")
    press_tab_to(page, "Use add_sub version 1")
    page.press("Enter")
    page.wait_for("document.activeElement.id === 'infer-body' && document.activeElement.value.includes('\"A\"')")
    page.evaluate("document.activeElement.select()")
    page.type(json.dumps({"inputs": [tensor("A", [5, 5]), tensor("B", [1, 2])]}))
    press_tab_to(page, "Send")
    page.press("Space")
    assert answer(page)[0] == "Status 400"  # four values are what it takes
    page.evaluate("document.getElementById('infer-body').focus()")
    page.evaluate("document.activeElement.select()")
    page.type(json.dumps({"inputs": [tensor("A", [5, 5, 5, 5]), tensor("B", [1, 2, 3, 4])]}))
    press_tab_to(page, "Send")
    page.press("Enter")
    page.wait_for("document.querySelector('#infer-result p').textContent.startsWith('Status 200')")


def press_tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with this label or text has the focus."""
    for _ in range(100):
        page.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent") == name:
            return
    raise AssertionError(f"100 Tabs do not lead to {name}")


def test_everything_that_can_be_used_has_a_name(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    used = [
        node
        for node in page.nodes()
        if node.get("role", {}).get("value") in ("button", "link", "textbox", "DisclosureTriangle")
    ]
    assert len(used) > 50
    assert [node for node in used if not node.get("name", {}).get("value")] == []


def test_answers_are_announced_to_those_who_do_not_see_them(page: Page) -> None:
    roles = page.evaluate(
        "['server', 'models-note', 'infer-result'].map(id => document.getElementById(id).getAttribute('role'))"
    )
    assert roles == ["status", "status", "status"]


def test_it_can_be_read_on_a_narrow_screen(page: Page) -> None:
    page.resize(360, 640)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_restricted_server_asks_for_its_header_and_then_shows_everything(
    browser: browsers.ClientConnection, tmp_path: Path, serve: Callable[..., ServerProcess]
) -> None:
    model_folders.identity(tmp_path, "hidden")
    restricted = serve(tmp_path, "--http-restricted-api=metadata,model-repository,inference:admin-key=s3cret")
    page = Page(browser).open(f"{restricted.url}/docs")
    page.wait_for("document.getElementById('key').open")
    assert page.evaluate("document.querySelectorAll('#models-rows tr').length") == 0
    page.evaluate("document.getElementById('key-name').focus()")
    page.type("admin-key")
    page.press("Tab")
    page.type("s3cret")
    page.press("Enter")
    assert page.wait_for("document.querySelector('#models-rows th')?.textContent") == "hidden"
    page.wait_for("document.querySelector('#endpoints-list details') !== null")
    page.wait_for("document.getElementById('infer-body').value")
    page.evaluate("document.getElementById('infer-form').requestSubmit()")
    assert answer(page)[0] == "Status 200"
    page.close()
