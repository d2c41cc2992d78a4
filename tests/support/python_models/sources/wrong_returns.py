"""Breaks the contract of `execute` in the way that WAY of one request of the batch names; else Y = X and Z = -X.

A way is a function of the model, of the right answers, and of the index of the request that asks for it.
"""

import sys
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def response(*tensors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors])


def replaced(answers, index, value):
    answers[index] = value
    return answers


def with_y(answers, index, *tensors):
    return replaced(answers, index, response(*tensors, ("Z", np.zeros((1, 1), np.float32))))


def none(model, answers, index):
    return None


def empty_list(model, answers, index):
    return []


def none_in_list(model, answers, index):
    return replaced(answers, index, None)


def one_response(model, answers, index):
    return answers[0]


def generator(model, answers, index):
    return (each for each in answers)


def as_tuple(model, answers, index):
    return tuple(answers)


def too_few(model, answers, index):
    return answers[:-1]


def too_many(model, answers, index):
    return [*answers, answers[0]]


def not_a_response(model, answers, index):
    return replaced(answers, index, "Y")


def same_object_twice(model, answers, index):
    return [answers[0]] * len(answers)


def without_tensors(model, answers, index):
    return replaced(answers, index, response())


def misspelt_name(model, answers, index):
    return with_y(answers, index, ("y", np.zeros((1, 1), np.float32)))


def extra_tensor(model, answers, index):
    return with_y(answers, index, ("Y", np.full((1, 1), 7, np.float32)), ("Q", np.zeros((1, 1), np.float32)))


def one_of_two(model, answers, index):
    return replaced(answers, index, response(("Y", np.zeros((1, 1), np.float32))))


def wrong_batch(model, answers, index):
    return with_y(answers, index, ("Y", np.zeros((2, 1), np.float32)))


def wrong_rank(model, answers, index):
    return with_y(answers, index, ("Y", np.zeros(1, np.float32)))


def wrong_dtype(model, answers, index):
    return with_y(answers, index, ("Y", np.zeros((1, 1), np.float64)))


def raises_text(model, answers, index):
    raise ValueError("é\n" * 1000)


def raises_system_exit(model, answers, index):
    sys.exit(3)


def raises_keyboard_interrupt(model, answers, index):
    raise KeyboardInterrupt


def raises_memory_error(model, answers, index):
    raise MemoryError


def raises_without_text(model, answers, index):
    raise ValueError


def raises_model_exception(model, answers, index):
    raise pb_utils.TritonModelException("my own words")


def error_and_tensors(model, answers, index):
    tensors = [pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))]
    return replaced(
        answers, index, pb_utils.InferenceResponse(tensors, pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND))
    )


def error_for_one(model, answers, index):
    return replaced(answers, index, pb_utils.InferenceResponse(error=pb_utils.TritonError("this one only")))


def sends_itself(model, answers, index):
    model.requests[index].get_response_sender().send(answers[index])
    return replaced(answers, index, None)


def sends_and_returns(model, answers, index):
    model.requests[index].get_response_sender().send(answers[index])
    return answers


def recursion(model, answers, index):
    return recursion(model, answers, index)


def prints_rubbish(model, answers, index):
    sys.stdout.buffer.write(bytes(range(256)) * 20)
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(b"\xff\xfe\x00\n" * 20)
    return answers


def closes_its_outputs(model, answers, index):
    sys.stdout.close()
    return answers


def huge_text(model, answers, index):
    return replaced(answers, index, pb_utils.InferenceResponse(error=pb_utils.TritonError("x" * 100_000)))


def text_of_surrogates(model, answers, index):
    raise ValueError("half a pair: \ud800")


def sleeps_for_an_hour(model, answers, index):
    time.sleep(3600)
    return answers


class TritonPythonModel:
    def execute(self, requests):
        self.requests = requests
        ways = [pb_utils.get_input_tensor_by_name(request, "WAY").as_numpy()[0, 0].decode() for request in requests]
        answers = [self.answer(request) for request in requests]
        for index, way in enumerate(ways):
            if way != "good":
                return globals()[way](self, answers, index)
        return answers

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        return response(("Y", x), ("Z", -x))
