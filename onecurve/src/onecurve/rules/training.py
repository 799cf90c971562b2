"""Dropout is active, and the test batches change BatchNorm's statistics."""

from onecurve.evidence.found import found

LEVEL = "LOOK"
MESSAGE = "the model is evaluated in train() mode: {what} is active"
FIX = "call model.eval() before evaluating and model.train() after"
RANKS = "one"


def find(seen):
    trained = {epoch["line"] for epoch in seen.readings(0, True)}
    passes = [one for one in seen.of("pass") if not one["grad"] and one["at_work"]]
    # evaluations of training batches don't count
    passes = [one for one in passes if not trained & set(one["reading"])]
    often = not trained and len(passes) > len(seen.of("step")) / 2
    if passes and not often:
        yield found(passes[0]["line"], what=passes[0]["at_work"][0])
