"""JSON parts that were read before: the same text again, with as many bytes behind it, needs no parsing.

Owns that memory. A client that sends a tensor of the same shape again repeats its JSON part to the byte, since the tensor is in
the binary section. Texts with an `id` or of a sequence are not kept, as ids differ: a thousand sequences would push out all
others, and learning costs twice what reading does. Nor are those with tensors in JSON or in shared memory. A property test
holds both ways to the same calls.
"""

from __future__ import annotations

from dataclasses import replace

from naiad.request.call import CallInput, CallTemplate, InferCall

_MOST_KNOWN = 512
_LONGEST_KNOWN = 2048


class _Known(CallTemplate):
    """What a text says, and where the inputs lie in the binary section (start and end, from its beginning)."""

    __slots__ = ("call", "inputs", "size")

    def __init__(self, call: InferCall, size: int) -> None:
        # Without its inputs: they are views of a whole body, which must not live on with the text.
        self.call = replace(call, inputs=[])
        self.size = size
        self.inputs: list[tuple[str, str, list[int], int, int]] = []
        start = 0
        for item in call.inputs:
            end = start + len(item.buffer or b"")
            self.inputs.append((item.name, item.datatype, item.shape, start, end))
            start = end


class CallTemplates:
    """Remembers a bounded number of texts."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def find(self, text: bytes, view: memoryview, model_name: str, model_version: str) -> InferCall | None:
        """Return the call of a text that is known, with its inputs' bytes taken from `view`, the whole body.

        What the call holds beside them (shapes, outputs, parameters) is shared between calls and must not be changed.
        """
        known = self._known.get(text)
        if known is None or len(text) + known.size != len(view):
            return None
        position = len(text)
        inputs = [
            CallInput(name, datatype, shape, view[position + start : position + end])
            for name, datatype, shape, start, end in known.inputs
        ]
        return known.call.repeated(model_name, model_version, "", inputs, known)

    def learn(self, text: bytes, call: InferCall, size: int) -> None:
        """Remember `text`, which was read as `call` and has `size` bytes behind it."""
        if call.id or call.sequence_id or len(text) > _LONGEST_KNOWN or any(item.buffer is None for item in call.inputs):
            return
        if any(output.region is not None for output in call.outputs):
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[text] = _Known(call, size)
