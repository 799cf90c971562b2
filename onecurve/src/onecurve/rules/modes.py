"""Dropout and BatchNorm behave differently in the two modes."""

from onecurve.evidence.found import found, of_each_rank

LEVEL = "ERROR"
MESSAGE = "some ranks train in train() mode, others in eval() mode"
FIX = "call model.train() on every rank before each epoch"


def find(seen):
    table = [modes_of(events) for events in seen.events]
    for each in zip(*table, strict=False):
        modes = ["train()" if training else "eval()" for _, training, _ in each]
        if len(set(modes)) > 1:
            line, _, called = each[modes.index("train()")]
            yield found(called or line, of_each_rank(modes))
            return


def modes_of(events):
    """Return [(line, whether in train(), line that set it)] per backward."""
    modes = []
    training = None
    called = None
    for event in events:
        if event["kind"] == "mode":
            called = event["line"]
        elif event["kind"] == "pass":
            training = event["training"] if event["grad"] else None
        elif event["kind"] == "backward" and training is not None:
            modes.append((event["line"], training, called))
            training = None
    return modes
