"""Ensembles of Python models that show what becomes of a request: the same files for Naiad and for the C++ Triton."""

from __future__ import annotations

from pathlib import Path

import ensembles
import model_folders

ECHOING = """
        return [answer(Y=array(request, "X")) for request in requests]
"""
FAILING = """
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("no such thing", pb_utils.TritonError.NOT_FOUND))
                for _ in requests]
"""
HALF = """
        return [answer(A=array(request, "X")) for request in requests]
"""
HALF_CONFIG = f"""
max_batch_size: 8
input [ {ensembles.tensor("X")} ]
output [ {ensembles.tensor("A")}, {ensembles.tensor("B")} ]
"""
EITHER = """
        answers = []
        for request in requests:
            given = [tensor.name() for tensor in request.inputs()]
            answers.append(answer(Y=np.array([[len(given)]], np.float32)))
        return answers
"""
EITHER_CONFIG = """
max_batch_size: 8
input [
  { name: "X" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "W" data_type: TYPE_FP32 dims: [ -1 ] optional: true }
]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
NAMING = """
        said = {"sequence_id": 7, "sequence_start": True, "mood": "good"}
        return [answer(said, Y=array(request, "X")) for request in requests]
"""
TELLING = """
        import json
        answers = []
        for request in requests:
            said = {"id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                    "priority": getattr(request, "priority", int)(), "timeout": getattr(request, "timeout", int)(),
                    "parameters": json.loads(request.parameters())}
            answers.append(answer(SAID=np.array([[json.dumps(said).encode()]], object)))
        return answers
"""
ASKING = """
        answers = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "X")
            call = pb_utils.InferenceRequest(model_name=MODEL, requested_output_names=["Y"], inputs=[tensor])
            response = call.exec()
            if response.has_error():
                answers.append(pb_utils.InferenceResponse(error=response.error()))
            else:
                answers.append(answer(Y=pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()))
        return answers
"""
ECHO_CONFIG = f"max_batch_size: 8 input [ {ensembles.tensor('X')} ] output [ {ensembles.tensor('Y')} ]"
TELLING_CONFIG = f"max_batch_size: 8 input [ {ensembles.tensor('X')} ] output [ {ensembles.tensor('SAID', 'STRING', '1')} ]"


def write_models(repository: Path) -> Path:
    """Write them, and `echo`, which all of them use."""
    ensembles.python_model(repository, "echo", ECHOING, ECHO_CONFIG)
    ensembles.python_model(repository, "failing", FAILING, ECHO_CONFIG)
    ensembles.python_model(repository, "half", HALF, HALF_CONFIG)
    ensembles.python_model(repository, "either", EITHER, EITHER_CONFIG)
    ensembles.python_model(repository, "naming", NAMING, ECHO_CONFIG)
    ensembles.python_model(repository, "telling", TELLING, TELLING_CONFIG)
    x, y, said = ensembles.tensor("X"), ensembles.tensor("Y"), ensembles.tensor("SAID", "STRING", "1")
    ensembles.chain(repository, "fails", ["echo", "failing", "echo"])
    ensembles.chain(repository, "outer", ["echo", "fails"])
    ensembles.python_model(repository, "asks", ASKING.replace("MODEL", '"echoes"'), ECHO_CONFIG)
    ensembles.python_model(repository, "asks_itself", ASKING.replace("MODEL", '"circle"'), ECHO_CONFIG)
    ensembles.chain(repository, "echoes", ["echo", "echo"])
    ensembles.chain(repository, "asking", ["asks", "echo"])
    ensembles.chain(repository, "circle", ["echo", "asks_itself"])
    outputs = [ensembles.tensor("A"), ensembles.tensor("B")]
    model_folders.write_model(repository, "halves", ensembles.config(
        [x], outputs, [ensembles.step("half", {"X": "X"}, {"A": "A", "B": "B"})]
    ))  # fmt: skip
    passing = [
        ensembles.step("half", {"X": "X"}, {"A": "t1", "B": "t2"}),
        ensembles.step("either", {"X": "t1", "W": "t2"}, {"Y": "Y"}),
    ]
    model_folders.write_model(repository, "passing", ensembles.config([x], [ensembles.tensor("Y", dims="1")], passing))
    given = ensembles.tensor("W").replace("dims", "optional: true dims")
    optional = [ensembles.step("either", {"X": "X", "W": "W"}, {"Y": "Y"})]
    model_folders.write_model(repository, "optional", ensembles.config([x, given], [ensembles.tensor("Y", dims="1")], optional))
    tell = [ensembles.step("echo", {"X": "X"}, {"Y": "t"}), ensembles.step("telling", {"X": "t"}, {"SAID": "SAID"})]
    model_folders.write_model(repository, "tells", ensembles.config([x], [said], tell))
    tell = [ensembles.step("naming", {"X": "X"}, {"Y": "Y"}), ensembles.step("telling", {"X": "Y"}, {"SAID": "SAID"})]
    model_folders.write_model(repository, "names", ensembles.config([x], [said, y], tell))
    return repository
