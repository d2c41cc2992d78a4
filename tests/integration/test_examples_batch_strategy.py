"""The example of a batch strategy works as its README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "batch_strategy"


def test_no_batch_has_more_tokens_than_the_class_allows_and_it_has_closed_some(serve) -> None:
    server = serve(EXAMPLE / "models")
    command = [sys.executable, EXAMPLE / "client.py", server.grpc]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("40 texts of 5 to 1500 tokens; batches had ")
    assert server.metric("naiad_batches_total", model="summaries", reason="custom") > 0
    assert server.metric("naiad_batch_strategy_faults_total", model="summaries", reason="error") == 0
