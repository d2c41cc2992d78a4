"""The helper functions and constants of `triton_python_backend_utils`."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

NAMES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "STRING"]

MUST_HAVE = [
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
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


def text(kind):
    return getattr(kind, "__name__", repr(kind))


def numpy_types_by_name(model, request):
    return [text(pb_utils.triton_string_to_numpy(f"TYPE_{name}")) for name in NAMES]


def numpy_type_of_an_unknown_name(model, request):
    return pb_utils.triton_string_to_numpy("TYPE_NOTHING")


def numpy_type_of_bfloat16(model, request):
    return pb_utils.triton_string_to_numpy("TYPE_BF16")


def numpy_types_by_number(model, request):
    return [text(pb_utils.triton_to_numpy_type(number)) for number in range(1, 14)]


def numbers_of_numpy_types(model, request):
    kinds = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64]
    return [pb_utils.numpy_to_triton_type(kind) for kind in [*kinds, np.float16, np.float32, np.float64, np.object_]]


def number_of_a_dtype(model, request):
    return pb_utils.numpy_to_triton_type(np.dtype("float32"))


def number_of_bytes(model, request):
    return pb_utils.numpy_to_triton_type(np.bytes_)


def number_of_an_unknown_type(model, request):
    return pb_utils.numpy_to_triton_type(np.complex64)


def table_of_names(model, request):
    return sorted(pb_utils.TRITON_STRING_TO_NUMPY)


def serialized(model, request):
    return pb_utils.serialize_byte_tensor(np.array([b"ab", b""], dtype=object))


def serialized_text(model, request):
    return pb_utils.serialize_byte_tensor(np.array(["é"], dtype=object))


def serialized_nothing(model, request):
    return len(pb_utils.serialize_byte_tensor(np.array([], dtype=object)))


def serialized_numbers(model, request):
    return pb_utils.serialize_byte_tensor(np.zeros(1, np.float32))


def deserialized(model, request):
    value = pb_utils.deserialize_bytes_tensor(b"\x02\x00\x00\x00ab\x00\x00\x00\x00")
    return f"{value.dtype} {value.tolist()}"


def input_config(model, request):
    config = json.loads(model.args["model_config"])
    found = pb_utils.get_input_config_by_name(config, "NAME")
    return f"{found['name']} {found['data_type']} {found['dims']} {pb_utils.get_input_config_by_name(config, 'nobody')}"


def output_config(model, request):
    config = json.loads(model.args["model_config"])
    return (
        f"{pb_utils.get_output_config_by_name(config, 'SAID')['name']} {pb_utils.get_output_config_by_name(config, 'nobody')}"
    )


def is_decoupled(model, request):
    return pb_utils.using_decoupled_model_transaction_policy(json.loads(model.args["model_config"]))


def constants(model, request):
    names = "REQUEST_FLAG_SEQUENCE_START REQUEST_FLAG_SEQUENCE_END RESPONSE_COMPLETE_FINAL"
    return [getattr(pb_utils, f"TRITONSERVER_{name}") for name in names.split()]


def release_constants(model, request):
    return [int(getattr(pb_utils, f"TRITONSERVER_REQUEST_RELEASE_{name}")) for name in ("ALL", "RESCHEDULE")]


def memory_constants(model, request):
    return [int(getattr(pb_utils, f"TRITONSERVER_MEMORY_{name}")) for name in ("CPU", "GPU")]


def names(model, request):
    return [name for name in MUST_HAVE if not hasattr(pb_utils, name)]


def args(model, request):
    return json.dumps({key: type(value).__name__ for key, value in model.args.items()}, sort_keys=True)


def args_values(model, request):
    kept = ("model_instance_kind", "model_instance_device_id", "model_version", "model_name")
    return json.dumps({key: model.args[key] for key in kept})


def args_instance_name(model, request):
    return model.args["model_instance_name"]


def args_repository(model, request):
    return model.args["model_repository"].rstrip("/").rsplit("/", 1)[1]


def args_config(model, request):
    config = json.loads(model.args["model_config"])
    return f"{config['name']} {config['backend']} {config['max_batch_size']} {config['input'][0]['data_type']} {sorted(config)}"


def model_dir(model, request):
    return pb_utils.get_model_dir().rstrip("/").split("/")[-2:]
