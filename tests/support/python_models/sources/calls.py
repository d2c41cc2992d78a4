"""Calls of other models from within `execute`: `echo` (Y = X), `repeat` (decoupled: X[0] responses), `failing` and others."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


def ask(model_name, *values, outputs=("Y",), **more):
    tensor = pb_utils.Tensor("X", np.array([values], np.float32))
    return pb_utils.InferenceRequest(model_name=model_name, inputs=[tensor], requested_output_names=list(outputs), **more)


def said(response):
    if response.has_error():
        return f"error: {response.error().message()}"
    return [f"{each.name()} {each.as_numpy().tolist()}" for each in response.output_tensors()]


def a_call(model, request):
    return said(ask("echo", 1, 2).exec())


def a_call_of_a_version(model, request):
    return said(ask("echo", 1, model_version=1).exec())


def a_call_of_a_missing_version(model, request):
    return said(ask("echo", 1, model_version=9).exec())


def a_call_of_a_missing_model(model, request):
    return said(ask("nobody", 1).exec())


def a_call_with_a_wrong_input(model, request):
    tensor = pb_utils.Tensor("Z", np.zeros((1, 1), np.float32))
    return said(pb_utils.InferenceRequest(model_name="echo", inputs=[tensor], requested_output_names=["Y"]).exec())


def a_call_with_a_wrong_datatype(model, request):
    tensor = pb_utils.Tensor("X", np.zeros((1, 1), np.int32))
    return said(pb_utils.InferenceRequest(model_name="echo", inputs=[tensor], requested_output_names=["Y"]).exec())


def a_call_with_a_wrong_shape(model, request):
    tensor = pb_utils.Tensor("X", np.zeros((9, 1), np.float32))
    return said(pb_utils.InferenceRequest(model_name="echo", inputs=[tensor], requested_output_names=["Y"]).exec())


def a_call_for_an_unknown_output(model, request):
    return said(ask("echo", 1, outputs=["Q"]).exec())


def a_call_for_no_output(model, request):
    return said(ask("echo", 1, outputs=[]).exec())


def a_call_without_inputs(model, request):
    return said(pb_utils.InferenceRequest(model_name="echo", inputs=[], requested_output_names=["Y"]).exec())


def a_call_of_a_failing_model(model, request):
    return said(ask("failing", -1).exec())


def a_call_of_a_raising_model(model, request):
    return said(ask("failing", 666).exec())


def a_call_with_an_id_and_parameters(model, request):
    response = ask("telling", 1, request_id="inner", correlation_id=0, parameters={"k": "v"}, outputs=["SAID"]).exec()
    return response.output_tensors()[0].as_numpy()[0].decode()


def a_sequence_call(model, request):
    response = ask("telling", 1, correlation_id=5, flags=1, outputs=["SAID"]).exec()
    return response.output_tensors()[0].as_numpy()[0].decode()


def an_empty_tensor(model, request):
    tensor = pb_utils.Tensor("X", np.zeros((1, 0), np.float32))
    return said(pb_utils.InferenceRequest(model_name="echo", inputs=[tensor], requested_output_names=["Y"]).exec())


def the_tensor_that_came_in(model, request):
    inner = pb_utils.InferenceRequest(
        model_name="echo_bytes",
        inputs=[pb_utils.Tensor("X", np.array([[b"a", b"\xff"]], dtype=object))],
        requested_output_names=["Y"],
    )
    return said(inner.exec())


def a_large_tensor(model, request):
    array = np.arange(3_000_000, dtype=np.float32).reshape(1, -1)
    inner = pb_utils.InferenceRequest(model_name="echo", inputs=[pb_utils.Tensor("X", array)], requested_output_names=["Y"])
    return bool((inner.exec().output_tensors()[0].as_numpy() == array).all())


def a_request_used_twice(model, request):
    inner = ask("echo", 3)
    return f"{said(inner.exec())} {said(inner.exec())}"


def an_array_changed_after_the_call(model, request):
    array = np.ones((1, 2), np.float32)
    inner = pb_utils.InferenceRequest(model_name="echo", inputs=[pb_utils.Tensor("X", array)], requested_output_names=["Y"])
    response = inner.exec()
    array[:] = 7
    return said(response)


def decoupled_without_saying_so(model, request):
    return said(ask("repeat", 2).exec())


def plain_with_decoupled(model, request):
    responses = ask("echo", 1).exec(decoupled=True)
    return f"{type(responses).__name__} {[said(each) for each in responses]}"


def decoupled_of(count):
    return [said(each) for each in ask("repeat", count).exec(decoupled=True)]


def three_responses(model, request):
    return decoupled_of(3)


def no_response(model, request):
    return decoupled_of(0)


def a_hundred_responses(model, request):
    return len(decoupled_of(100))


def next_by_hand(model, request):
    responses = ask("repeat", 1).exec(decoupled=True)
    texts = [said(next(responses)), said(next(responses))]
    try:
        next(responses)
    except StopIteration:
        texts.append("StopIteration")
    return texts


def iterated_twice(model, request):
    responses = ask("repeat", 2).exec(decoupled=True)
    return [len(list(responses)), len(list(responses))]


def cancelled_iterator(model, request):
    responses = ask("repeat", 5).exec(decoupled=True)
    first = said(next(responses))
    responses.cancel()
    return first


def dropped_iterator(model, request):
    return said(next(ask("repeat", 1000).exec(decoupled=True)))


def cancelled_while_it_runs(model, request):
    responses = ask("patient", 1).exec(decoupled=True)
    responses.cancel()
    return [said(each) for each in responses]


def missing_model_decoupled(model, request):
    return [said(each) for each in ask("nobody", 1).exec(decoupled=True)]


def failing_model_decoupled(model, request):
    return [said(each) for each in ask("failing", -1).exec(decoupled=True)]


def itself(model, request):
    if request.request_id() == "inner":
        return "end"
    name = pb_utils.get_input_tensor_by_name(request, "NAME")
    inner = pb_utils.InferenceRequest(
        model_name=model.args["model_name"], inputs=[name], requested_output_names=["SAID"], request_id="inner", timeout=500_000
    )
    return said(inner.exec())


def its_time_limit(model, request):
    began = time.monotonic()
    text = said(ask("slow_batcher", 1, timeout=100_000).exec())
    return f"{time.monotonic() - began < 5} {text}"


def ready(model, request):
    return [pb_utils.is_model_ready("echo"), pb_utils.is_model_ready("echo", "1"), pb_utils.is_model_ready("echo", "9")]


def ready_of_a_missing_model(model, request):
    return pb_utils.is_model_ready("nobody")


def ready_by_keyword(model, request):
    return pb_utils.is_model_ready(model_name="echo", model_version="1")
