"""`make demo`: prepare the example models, serve them, and run every client against them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
CLIENTS = ("add_sub", "batched", "file_type")
MARK = "NAIAD_LISTENING "


def main() -> int:
    """Return 0 when every client got the right answers."""
    subprocess.run([sys.executable, EXAMPLES / "prepare.py"], check=True)
    command = [sys.executable, "-m", "naiad", "serve", EXAMPLES / "models", "--http-port=0", "--metrics-port=0"]
    print("$ naiad serve examples/models")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = ""
        for line in server.stdout:
            print(line, end="")
            if line.startswith(MARK):
                address = json.loads(line[len(MARK) :])["http"]
            if line.startswith("try "):
                break
        try:
            for client in CLIENTS if address else ():
                print(f"\n$ python examples/clients/{client}.py {address}", flush=True)
                subprocess.run([sys.executable, EXAMPLES / "clients" / f"{client}.py", address], check=True)
        finally:
            server.terminate()
    return server.returncode


if __name__ == "__main__":
    sys.exit(main())
