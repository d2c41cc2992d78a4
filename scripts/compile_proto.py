"""Compile proto/*.proto to the descriptor set that the package carries. Needs grpcio-tools, which only developers have.

Owns the call of the compiler. `--check` compares with what is committed and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
TARGET = ROOT / "src" / "naiad" / "proto" / "naiad.binpb"


def compile_sources() -> bytes:
    """Return the FileDescriptorSet of every file in proto/, each after those it imports. Raises RuntimeError when it can't."""
    from grpc_tools import protoc  # noqa: PLC0415 — a developer's tool, so that importing this file doesn't need it

    names = sorted(path.name for path in SOURCES.glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "set.binpb"
        code = protoc.main(["protoc", f"-I{SOURCES}", f"--descriptor_set_out={output}", "--include_imports", *names])
        if code != 0:
            raise RuntimeError(f"protoc ended with {code}")
        return output.read_bytes()


def main() -> int:
    """Write the descriptor set, or with --check return 1 when the committed one is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    is_check = parser.parse_args().check
    compiled = compile_sources()
    if is_check:
        is_current = TARGET.is_file() and TARGET.read_bytes() == compiled
        print(f"{TARGET} is {'up to date' if is_current else 'out of date: run make proto'}")
        return 0 if is_current else 1
    TARGET.write_bytes(compiled)
    print(f"wrote {TARGET}: {len(compiled)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
