"""Each rank computes the same gradient, so more ranks gain nothing."""

from onecurve.evidence import samples
from onecurve.evidence.found import found
from onecurve.evidence.seeds import drawn_at

LEVEL = "ERROR"
MESSAGE = "all ranks train on the same samples in the same order"
FIX = "use DistributedSampler, or seed the generator with seed + rank"
RANKS = "own batches"


def find(seen):
    seen = seen.since_wrapped()
    if samples.own_targets(seen):
        return
    for wrong, epochs in samples.shares(seen):
        if wrong == samples.SAME:
            yield found(epochs[0]["dealt"], [samples.used_per_rank(epochs)])
    if samples.has_indices(seen):
        return
    streams = samples.first_streams(seen)
    passes = list(seen.training_passes())
    if streams:
        size = len(streams[0]["rows"][0])
        if samples.same_stream(streams) and not samples.sliced(seen, size):
            yield found(streams[0]["dealt"])
    elif seen.of("step") and samples.same_rows(passes):
        noise = any(one["drawn"] != each[0]["drawn"] for each in passes for one in each)
        losses = {one["loss"] for one in next(seen.together("backward"), ())}
        # else ranks share the work on these samples, as on parts of a sequence
        if noise or len(losses) < 2:
            yield found(*drawn_at(seen))
