"""Requests, responses and errors as objects: what they are made of and say of themselves."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def tensor(name="T"):
    return pb_utils.Tensor(name, np.array([1], np.float32))


def request_id(model, request):
    return repr(request.request_id())


def correlation_id(model, request):
    return repr(request.correlation_id())


def request_flags(model, request):
    return repr(request.flags())


def request_timeout(model, request):
    return repr(request.timeout())


def request_parameters(model, request):
    value = request.parameters()
    return f"{type(value).__name__} {json.dumps(json.loads(value), sort_keys=True)}"


def wanted_outputs(model, request):
    return repr(request.requested_output_names())


def preferred_memory(model, request):
    return type(request.preferred_memory()).__name__


def is_cancelled(model, request):
    return request.is_cancelled()


def input_names(model, request):
    value = request.inputs()
    return f"{type(value).__name__} {[each.name() for each in value]}"


def trace(model, request):
    return f"{type(request.trace()).__name__} {request.trace().get_context()!r}"


def unknown_input(model, request):
    return pb_utils.get_input_tensor_by_name(request, "nobody")


def received_model_name(model, request):
    return repr(request.model_name())


def made_request(model, request):
    made = pb_utils.InferenceRequest(
        model_name="m",
        inputs=[tensor("A")],
        requested_output_names=["B"],
        request_id="7",
        correlation_id=9,
        model_version=2,
        flags=1,
        timeout=5,
        parameters={"k": "v", "n": 1, "b": True},
    )
    facts = [made.model_name(), made.request_id(), made.correlation_id(), made.flags(), made.timeout()]
    return f"{facts} {made.requested_output_names()} {[each.name() for each in made.inputs()]} {made.parameters()}"


def made_request_defaults(model, request):
    made = pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[])
    return f"{made.request_id()!r} {made.correlation_id()!r} {made.flags()} {made.timeout()} {made.parameters()!r}"


def made_request_text_correlation(model, request):
    return repr(
        pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[], correlation_id="s").correlation_id()
    )


def made_request_set_flags(model, request):
    made = pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[])
    made.set_flags(3)
    return made.flags()


def made_request_without_name(model, request):
    return pb_utils.InferenceRequest(inputs=[], requested_output_names=[]).model_name()


def made_request_without_outputs(model, request):
    return repr(pb_utils.InferenceRequest(model_name="m", inputs=[]).requested_output_names())


def made_request_without_inputs(model, request):
    return repr(pb_utils.InferenceRequest(model_name="m", requested_output_names=[]).inputs())


def made_request_with_wrong_input(model, request):
    return pb_utils.InferenceRequest(model_name="m", inputs=[np.zeros(1)], requested_output_names=[]).model_name()


def made_request_preferred_memory(model, request):
    memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)
    made = pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[], preferred_memory=memory)
    return type(made.preferred_memory()).__name__


def made_request_trace(model, request):
    made = pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[], trace=request.trace())
    return made.trace().get_context() == request.trace().get_context()


def made_request_parameter_of_wrong_type(model, request):
    return pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[], parameters={"k": [1]}).parameters()


def made_request_float_parameter(model, request):
    return pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[], parameters={"k": 1.5}).parameters()


def response_tensors(model, request):
    response = pb_utils.InferenceResponse([tensor("A"), tensor("B")])
    return f"{[each.name() for each in response.output_tensors()]} {response.has_error()} {response.error()}"


def response_by_keyword(model, request):
    return [each.name() for each in pb_utils.InferenceResponse(output_tensors=[tensor("A")]).output_tensors()]


def response_defaults(model, request):
    response = pb_utils.InferenceResponse()
    return f"{response.output_tensors()} {response.has_error()}"


def response_error(model, request):
    response = pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))
    return f"{response.has_error()} {response.error().message()} {response.output_tensors()}"


def response_error_by_position(model, request):
    return pb_utils.InferenceResponse([], pb_utils.TritonError("no")).error().message()


def response_error_as_text(model, request):
    return pb_utils.InferenceResponse(error="no").error().message()


def response_parameters(model, request):
    return repr(pb_utils.InferenceResponse([], parameters={"a": 1, "b": "x", "c": True, "d": 1.5}).parameters())


def response_parameters_default(model, request):
    return repr(pb_utils.InferenceResponse([]).parameters())


def response_parameter_of_wrong_type(model, request):
    return pb_utils.InferenceResponse([], parameters={"a": [1]}).parameters()


def response_with_wrong_tensor(model, request):
    return pb_utils.InferenceResponse([np.zeros(1)]).has_error()


def response_of_one_tensor(model, request):
    return pb_utils.InferenceResponse(tensor()).has_error()


def output_by_name(model, request):
    response = pb_utils.InferenceResponse([tensor("A")])
    found = pb_utils.get_output_tensor_by_name(response, "A")
    return f"{found.name()} {pb_utils.get_output_tensor_by_name(response, 'nobody')}"


def output_by_name_of_an_error(model, request):
    return pb_utils.get_output_tensor_by_name(pb_utils.InferenceResponse(error=pb_utils.TritonError("no")), "A")


def error_default_code(model, request):
    error = pb_utils.TritonError("no")
    return f"{error.message()} {error.code() == pb_utils.TritonError.INTERNAL}"


def error_codes(model, request):
    names = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"]
    return [
        pb_utils.TritonError("no", getattr(pb_utils.TritonError, name)).code() == getattr(pb_utils.TritonError, name)
        for name in names
    ]


def error_code_by_keyword(model, request):
    return pb_utils.TritonError(message="no", code=pb_utils.TritonError.NOT_FOUND).code() == pb_utils.TritonError.NOT_FOUND


def exception(model, request):
    raise pb_utils.TritonModelException("my words")


def exception_is_an_exception(model, request):
    return issubclass(pb_utils.TritonModelException, Exception)
