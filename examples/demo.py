"""`make demo`: prepare the example models, serve them, run every client against them, stop.

The exit code is 0 when every client got the right answers and the server stopped cleanly.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
CLIENTS = ("add_sub", "batched", "file_type")
LISTENING = "NAIAD_LISTENING "
LAST_LINE_OF_START = "try "


def main() -> int:
    """Return the exit code."""
    subprocess.run([sys.executable, EXAMPLES / "prepare.py"], check=True)
    print("$ naiad serve examples/models", flush=True)
    flags = ("--http-port=0", "--grpc-port=0", "--metrics-port=0", "--log-info=false")
    command = [sys.executable, "-m", "naiad", "serve", EXAMPLES / "models", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = wait_ready(server)
            failed = [client for client in CLIENTS if not run_client(client, address)] if address else []
        finally:
            server.terminate()
    if server.returncode:
        print(f"\nThe server ended with exit code {server.returncode}.", file=sys.stderr)
    if failed:
        print(f"\nFailed: {', '.join(failed)}.", file=sys.stderr)
    if server.returncode or failed:
        return 1
    print(f"\nAll {len(CLIENTS)} clients got the right answers; the server has stopped.")
    return 0


def wait_ready(server: subprocess.Popen[str]) -> str:
    """Show what the server says until it is ready; return its HTTP address, or nothing when it ended before."""
    assert server.stdout is not None
    address = ""
    for line in server.stdout:
        print(line, end="", flush=True)
        if line.startswith(LISTENING):
            address = json.loads(line[len(LISTENING) :])["http"]
        if line.startswith(LAST_LINE_OF_START):
            return address
    return ""


def run_client(client: str, address: str) -> bool:
    """Run one client; return whether it got the right answers."""
    print(f"\n$ python examples/clients/{client}.py {address}", flush=True)
    return subprocess.run([sys.executable, EXAMPLES / "clients" / f"{client}.py", address], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
