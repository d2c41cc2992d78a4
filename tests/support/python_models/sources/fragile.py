"""Answers Y = 2 X, after what a request's parameter `do` names: the many ways in which models of users harm themselves.

`note` leaves a file in the model's folder, `wait_for` waits for one: so a test knows where the model is and holds it there.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.folder = Path(args["model_repository"])
        self.kept = []
        self.note("initializing")
        self.wait_while("hold_initialize")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def finalize(self):
        if (self.folder / "call_in_finalize").exists():
            try:
                ask("echo", np.zeros((1, 1), np.float32))
            except pb_utils.TritonModelException as error:
                self.note("finalized", str(error))
        self.note("finalizing")

    def answer(self, request):
        parameters = json.loads(request.parameters())
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        result = getattr(self, parameters.get("do", "nothing"))(x, parameters)
        if result is None:
            result = x * 2
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", result)])

    def note(self, name, text=""):
        part = self.folder / f"{name}.part"
        part.write_text(text)
        part.rename(self.folder / name)

    def wait_for(self, name):
        while not (self.folder / name).exists():
            time.sleep(0.002)

    def wait_while(self, name):
        while (self.folder / name).exists():
            time.sleep(0.002)

    def nothing(self, x, parameters):
        """Just answer."""

    def hold(self, x, parameters):
        self.note(f"{parameters['tag']}.begun")
        self.wait_for(f"{parameters['tag']}.go")

    def hold_and_die(self, x, parameters):
        self.hold(x, parameters)
        self.die(x, parameters)

    def die(self, x, parameters):
        os.kill(os.getpid(), signal.SIGKILL)

    def die_once(self, x, parameters):
        mark = self.folder / f"{parameters['tag']}.died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def die_when_idle(self, x, parameters):
        """Answer, and end as soon as the answer is out: the main thread waits for work again then."""
        main = threading.main_thread().ident

        def watch():
            while sys._current_frames()[main].f_code.co_name != "_receive":
                time.sleep(0)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, daemon=True).start()

    def hang(self, x, parameters):
        while True:
            time.sleep(1)

    def spin(self, x, parameters):
        while True:
            pass

    def leak(self, x, parameters):
        self.kept.append(np.ones(parameters["bytes"], np.uint8))

    def pid(self, x, parameters):
        return np.full_like(x, os.getpid())

    def print_much(self, x, parameters):
        line = "naiad" * 20
        for _ in range(100_000):
            sys.stdout.write(line + "\n")

    def write_rubbish(self, x, parameters):
        data = bytes(range(256)) * 400
        for _ in range(10):
            os.write(1, data)
            os.write(2, data)

    def close_output(self, x, parameters):
        os.close(1)
        os.close(2)

    def fork(self, x, parameters):
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    def fork_and_exit_by_exception(self, x, parameters):
        child = os.fork()
        if child == 0:
            sys.exit(7)
        return np.full_like(x, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def fork_and_return(self, x, parameters):
        child = os.fork()
        if child:
            os.waitpid(child, 0)

    def fork_and_drop_inputs(self, x, parameters):
        """The child lets go of an array that the parent still uses."""
        self.kept.append(x)
        child = os.fork()
        if child == 0:
            pb_utils.Logger.log_warn("a word of the child")
            self.kept.clear()
            del x
            os._exit(0)
        os.waitpid(child, 0)

    def read_kept(self, x, parameters):
        return np.array([[kept.sum() for kept in self.kept]], np.float32)

    def leave_a_child(self, x, parameters):
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        return np.full_like(x, child)

    def run_a_program(self, x, parameters):
        done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], check=True, capture_output=True, text=True)
        return np.full_like(x, float(done.stdout))

    def fork_a_pool(self, x, parameters):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return np.full_like(x, sum(pool.map(abs, [-1, -2, -3])))

    def spawn_a_process(self, x, parameters):
        process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
        process.start()
        process.join()
        return np.full_like(x, process.exitcode)

    def change_directory(self, x, parameters):
        os.chdir("/")

    def break_numpy(self, x, parameters):
        def broken(*arguments, **more):
            raise RuntimeError("numpy is broken")

        answer = x * 2
        for name in ("frombuffer", "empty", "zeros", "array", "asarray", "ascontiguousarray", "prod"):
            setattr(np, name, broken)
        return answer

    def break_json(self, x, parameters):
        json.loads = json.dumps = json.JSONEncoder.encode = None
        time.monotonic_ns = time.monotonic = None

    def close_descriptors(self, x, parameters):
        os.closerange(3, 256)

    def handle_signals(self, x, parameters):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1):
            signal.signal(number, lambda *_: self.note("signalled"))
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)

    def set_an_alarm(self, x, parameters):
        def ring(number, frame):
            self.note("rung")

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    def exit_in_a_thread(self, x, parameters):
        thread = threading.Thread(target=sys.exit)
        thread.start()
        thread.join()

    def raise_in_a_thread(self, x, parameters):
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()

    def exit(self, x, parameters):
        sys.exit(3)

    def exit_at_once(self, x, parameters):
        os._exit(3)

    def start_an_endless_thread(self, x, parameters):
        threading.Thread(target=threading.Event().wait).start()

    def recurse(self, x, parameters):
        return self.recurse(x, parameters)

    def want_too_much_memory(self, x, parameters):
        return np.empty(1 << 60, np.uint8)

    def answer_much(self, x, parameters):
        return np.full((1, parameters["count"]), 3, np.float32)

    def answer_mapped_memory(self, x, parameters):
        """An array over a file that another process maps, too."""
        path = self.folder / "mapped"
        np.full((1, 4), 5, np.float32).tofile(path)
        return np.memmap(path, np.float32, "r", shape=(1, 4))

    def change_input(self, x, parameters):
        x *= 2
        return x

    def keep_inputs(self, x, parameters):
        self.kept.append(x)

    def let_go(self, x, parameters):
        self.kept.clear()

    def crash(self, x, parameters):
        import ctypes

        ctypes.string_at(0)

    def call_often_at_once(self, x, parameters):
        """64 calls by as many threads, each with numbers of its own."""
        results = [None] * 64

        def call(index):
            results[index] = float(ask("echo", np.full((1, 1 + index * 300), index, np.float32)).sum() / (1 + index * 300))

        threads = [threading.Thread(target=call, args=(index,)) for index in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return np.array([results], np.float32)

    def call(self, x, parameters):
        return ask(parameters["model"], x, parameters={key[4:]: each for key, each in parameters.items() if key[:4] == "its_"})

    def call_and_survive(self, x, parameters):
        try:
            return self.call(x, parameters)
        except pb_utils.TritonModelException as error:
            self.note("caught", str(error))
            return np.full_like(x, -1)


def ask(model, x, **more):
    request = pb_utils.InferenceRequest(
        model_name=model, inputs=[pb_utils.Tensor("X", x)], requested_output_names=["Y"], **more
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return response.output_tensors()[0].as_numpy()
