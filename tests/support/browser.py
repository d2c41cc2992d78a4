"""A headless Chromium for tests, driven by the DevTools protocol; every request and complaint of a page is kept."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
LISTENING = "DevTools listening on "
KEYS = {"Tab": 9, "Enter": 13, "Space": 32}
TEXTS = {"Enter": "\r", "Space": " "}


@contextmanager
def running(program: str, profile: Path) -> Iterator[ClientConnection]:
    """Start a browser with an empty profile; yield the connection to it; stop it with everything it started."""
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        address = next(line[len(LISTENING) :].strip() for line in process.stderr if line.startswith(LISTENING))
        # From here on nobody reads what it says, but it must not wait for a reader.
        reader = threading.Thread(target=process.stderr.read, daemon=True)
        reader.start()
        with connect(address, max_size=None) as connection:
            yield connection
            connection.send(json.dumps({"id": 0, "method": "Browser.close"}))
        process.wait(20)
        reader.join(5)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stderr.close()


class Page:
    """One page. `requests` holds the URLs it asked for, `complaints` what its console and the browser had to say."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._last_id = 0
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._has_loaded = False
        self._target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> Page:
        """Load a page and wait until it has."""
        self._has_loaded = False
        assert "errorText" not in self._call("Page.navigate", url=url)
        deadline = time.monotonic() + 15
        while not self._has_loaded:
            self._take(json.loads(self._connection.recv(timeout=max(0.0, deadline - time.monotonic()))))
        return self

    def close(self) -> None:
        session, self._session = self._session, ""
        assert session
        self._call("Target.closeTarget", targetId=self._target)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = 10) -> Any:
        """Return the value of an expression as soon as it is true; fail after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression} is still {value!r} after {timeout_s} s"
            time.sleep(0.01)
        return value

    def press(self, key: str) -> None:
        """Press and release one of KEYS."""
        names = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        down = {"type": "keyDown", "text": TEXTS[key]} if key in TEXTS else {"type": "rawKeyDown"}
        self._call("Input.dispatchKeyEvent", **down, **names)
        self._call("Input.dispatchKeyEvent", type="keyUp", **names)

    def type(self, text: str) -> None:
        """Put text where the focus is, as a keyboard would."""
        self._call("Input.insertText", text=text)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size, in CSS pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def nodes(self) -> Sequence[dict[str, Any]]:
        """Return what assistive technology sees: the accessibility tree as a flat list."""
        found: Sequence[dict[str, Any]] = self._call("Accessibility.getFullAXTree")["nodes"]
        return found

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(self._connection.recv(timeout=15))
            if answer.get("id") == self._last_id and answer.get("sessionId", "") == self._session:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._take(answer)

    def _take(self, event: dict[str, Any]) -> None:
        if event.get("sessionId") != self._session:
            return
        method, facts = event["method"], event["params"]
        if method == "Page.loadEventFired":
            self._has_loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(facts["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([argument.get("value") for argument in facts["args"]]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{facts['entry']['text']} {facts['entry'].get('url', '')}")
