"""Joins requests by the memory that a batch takes: padded to the longest request, it has at most `max_batch_tokens` tokens."""


class PaddedBatch:
    """What a batch that is being formed takes."""

    def __init__(self):
        self.items = 0
        self.longest = 0

    def tokens_with(self, request):
        """Return how many tokens the batch would have with `request`, padding included."""
        items, length = request.inputs["TOKENS"].shape
        return (self.items + items) * max(self.longest, length)

    def add(self, request):
        """Note that `request` joins."""
        items, length = request.inputs["TOKENS"].shape
        self.items += items
        self.longest = max(self.longest, length)


class BatchStrategy:
    """Made once when the model is loaded, with the model's configuration."""

    def __init__(self, config):
        self.max_tokens = int(config["parameters"]["max_batch_tokens"]["string_value"])

    def begin(self):
        """Return what stands for a new batch."""
        return PaddedBatch()

    def include(self, batch, request):
        """Return whether `request` may join; one that is too large by itself runs alone."""
        if batch.tokens_with(request) > self.max_tokens:
            return False
        batch.add(request)
        return True
