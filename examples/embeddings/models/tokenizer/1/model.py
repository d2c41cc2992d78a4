"""Texts as the numbers of their tokens, padded to a multiple of 16 tokens; of a long text the first 256 tokens count."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

MOST_TOKENS = 256
MULTIPLE = 16


class TritonPythonModel:
    """The tokens of each TEXT."""

    def initialize(self, args):
        """Read the vocabulary."""
        self.tokenizer = Tokenizer.from_file(str(Path(__file__).parent / "tokenizer.json"))
        self.tokenizer.enable_truncation(MOST_TOKENS)
        # Requests of nearly the same length get the same shape, so that the next model can run them together.
        self.tokenizer.enable_padding(pad_id=0, pad_token="[PAD]", pad_to_multiple_of=MULTIPLE)

    def execute(self, requests):
        """Answer each request of a batch by itself, in the length of its own longest text."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Return the response to one request."""
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        try:
            encodings = self.tokenizer.encode_batch([text.decode() for text in texts[:, 0]])
        except UnicodeDecodeError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"TEXT: {error}", pb_utils.TritonError.INVALID_ARG))
        rows = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.array(values, np.int64)) for name, values in rows.items()])
