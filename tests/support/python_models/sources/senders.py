"""Answers by senders in the way that NAME names, in a plain model and in a decoupled one. "last" says what was raised before.

A way is a function of the request, its sender and `answer`, which makes a response of a text.
"""

import gc
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def answer(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([str(text).encode()], dtype=object))])


def one_final(request, sender):
    sender.send(answer("a"), flags=FINAL)


def one_then_final(request, sender):
    sender.send(answer("a"))
    sender.send(flags=FINAL)


def three(request, sender):
    for text in "abc":
        sender.send(answer(text))
    sender.send(flags=FINAL)


def three_by_position(request, sender):
    for text in "abc":
        sender.send(answer(text), 0)
    sender.send(None, FINAL)


def no_response(request, sender):
    sender.send(flags=FINAL)


def nothing_at_all(request, sender):
    sender.send(None, 0)


def nothing_by_default(request, sender):
    sender.send()


def unknown_flag(request, sender):
    sender.send(answer("a"), flags=2)


def after_final(request, sender):
    sender.send(answer("a"), flags=FINAL)
    sender.send(answer("b"))


def final_twice(request, sender):
    sender.send(answer("a"), flags=FINAL)
    sender.send(flags=FINAL)


def not_a_response(request, sender):
    sender.send("a", flags=FINAL)


def an_error(request, sender):
    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND)), flags=FINAL)


def an_error_between(request, sender):
    sender.send(answer("a"))
    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no")))
    sender.send(answer("b"), flags=FINAL)


def second_sender(request, sender):
    request.get_response_sender().send(answer("a"), flags=FINAL)


def raises_before(request, sender):
    raise ValueError("before any response")


def raises_after_one(request, sender):
    sender.send(answer("a"))
    raise ValueError("after a response")


def raises_after_final(request, sender):
    sender.send(answer("a"), flags=FINAL)
    raise ValueError("after the end")


def from_a_thread(request, sender):
    def later():
        for text in "ab":
            sender.send(answer(text))
        sender.send(flags=FINAL)

    thread = threading.Thread(target=later)
    thread.start()
    return thread


def dropped(request, sender):
    del sender, request
    gc.collect()


def is_cancelled(request, sender):
    sender.send(answer(sender.is_cancelled() if hasattr(sender, "is_cancelled") else request.is_cancelled()), flags=FINAL)


class TritonPythonModel:
    def initialize(self, args):
        self.said = "nothing"
        self.kept = []
        self.is_decoupled = '"decoupled":true' in args["model_config"].replace(" ", "")

    def execute(self, requests):
        for request in requests:
            name = pb_utils.get_input_tensor_by_name(request, "NAME").as_numpy()[0].decode()
            if name == "last":
                request.get_response_sender().send(answer(self.said), flags=FINAL)
            else:
                self.run(globals()[name], request)
        if self.is_decoupled:
            return None
        return [None for _ in requests]

    def run(self, way, request):
        self.said = "nothing"
        try:
            self.kept.append(way(request, request.get_response_sender()))
        except Exception as error:
            self.said = f"{type(error).__name__}: {error}"
            if way.__name__.startswith("raises"):
                raise
