"""`triton_python_backend_utils`: the name by which Python models import the model API.

Owns the list of names. This folder is on the path of worker processes and holds nothing else.
"""

from naiad.worker.api.control import Logger, LogLevel, get_model_dir, is_model_ready, load_model, unload_model
from naiad.worker.api.datatypes import (
    TRITON_STRING_TO_NUMPY,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)
from naiad.worker.api.errors import TritonError, TritonModelException
from naiad.worker.api.metrics import Metric, MetricFamily, MetricKind
from naiad.worker.api.model_config import (
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from naiad.worker.api.request import (
    RELEASE_ALL as TRITONSERVER_REQUEST_RELEASE_ALL,
)
from naiad.worker.api.request import (
    RELEASE_RESCHEDULE as TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
)
from naiad.worker.api.request import (
    SEQUENCE_END as TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
)
from naiad.worker.api.request import (
    SEQUENCE_START as TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
)
from naiad.worker.api.request import (
    InferenceRequest,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
    get_input_tensor_by_name,
)
from naiad.worker.api.response import InferenceResponse, ResponseIterator, get_output_tensor_by_name
from naiad.worker.api.sender import FINAL as TRITONSERVER_RESPONSE_COMPLETE_FINAL
from naiad.worker.api.sender import InferenceResponseSender
from naiad.worker.api.tensor import Tensor

TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "LogLevel",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]
