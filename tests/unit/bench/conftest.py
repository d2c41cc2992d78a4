"""A small server that speaks just enough of the protocol to be measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.servers import Launch
from bench.triton_setup import Program

# The identity over HTTP in both forms, with two versions whose statistics each count every request; ready at once.
SERVER = """
import http.server, json
answered = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        versions = [{"inference_stats": {"success": {"count": answered}}, "execution_count": (answered + 1) // 2}] * 2
        self.answer({} if self.path == "/v2/health/ready" else {"model_stats": versions})
    def do_POST(self):
        global answered
        answered += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        size = int(self.headers.get("Inference-Header-Content-Length", len(body)))
        self.answer({"outputs": [{**tensor, "name": "OUTPUT0"} for tensor in json.loads(body[:size])["inputs"]]}, body[size:])
    def answer(self, value, tail=b""):
        header = json.dumps(value).encode()
        self.send_response(404 if self.path.startswith("/v2/models/absent/") else 200)
        self.send_header("Content-Length", str(len(header) + len(tail)))
        self.send_header("Inference-Header-Content-Length", str(len(header)))
        self.end_headers()
        self.wfile.write(header + tail)
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print('NAIAD_LISTENING {"http": "127.0.0.1:%d"}' % server.server_port, flush=True)
server.serve_forever()
"""

# A child that outlives its server unless it is stopped; it is up, so its memory is settled, before the server is.
CHILD = """
import subprocess, sys
code = "import signal; print('up', flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
"""


@pytest.fixture
def small_launch() -> Launch:
    return Launch("Small", Program(Path(sys.executable)), ("-c", SERVER))


@pytest.fixture
def small_launch_with_child() -> Launch:
    return Launch("Small", Program(Path(sys.executable)), ("-c", CHILD + SERVER))
