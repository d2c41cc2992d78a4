"""Decoupled: sends nothing before its request is cancelled, which it notes in the file `cancelled` of the model's folder."""

import pathlib
import threading
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.notes = pathlib.Path(args["model_repository"], "cancelled")

    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.wait, args=(request, request.get_response_sender())).start()

    def wait(self, request, sender):
        end = time.monotonic() + 30
        while not request.is_cancelled() and time.monotonic() < end:
            time.sleep(0.01)
        if request.is_cancelled():
            with self.notes.open("a") as notes:
                notes.write("cancelled\n")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
