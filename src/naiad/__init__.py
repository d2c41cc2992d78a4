"""Naiad: a model inference server in pure Python. Importing it imports nothing else.

A server inside a program: `Server`, `serve`, and for functions `Tensor`, `Batching`, `model_function`. Errors are
`InferenceServerError`s. Each is imported when it is first used.
"""

__version__ = "0.1.0.dev0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from naiad.errors import InferenceServerError as InferenceServerError
    from naiad.server.embedded.declaration import Batching as Batching
    from naiad.server.embedded.declaration import ModelFunction as ModelFunction
    from naiad.server.embedded.declaration import Tensor as Tensor
    from naiad.server.embedded.declaration import model_function as model_function
    from naiad.server.embedded.models import ModelHandle as ModelHandle
    from naiad.server.embedded.server import Server as Server
    from naiad.server.embedded.server import serve as serve

_MODULES = {
    "InferenceServerError": "naiad.errors",
    "Batching": "naiad.server.embedded.declaration",
    "ModelFunction": "naiad.server.embedded.declaration",
    "ModelHandle": "naiad.server.embedded.models",
    "Server": "naiad.server.embedded.server",
    "Tensor": "naiad.server.embedded.declaration",
    "model_function": "naiad.server.embedded.declaration",
    "serve": "naiad.server.embedded.server",
}


def __getattr__(name: str) -> object:
    """Import what `name` stands for. Raises AttributeError for anything else."""
    if name not in _MODULES:
        raise AttributeError(f"module 'naiad' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 — importing naiad imports nothing

    value: object = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*_MODULES, "__version__"])
