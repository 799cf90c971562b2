"""What a run of a learner's script has to have in common with a right one.

Each function `expect_...` gets their Records, and raises Wrong where they differ.
"""

import math

from tools.lab.record import CLOSE, Wrong

NORM = "the norm of the gradient that the optimizer gets is"


def expect_curve(record, expected, what="one process"):
    """Raise Wrong unless losses and counts are another run's, and it has saved."""
    record.expect_epochs(len(expected.rows))
    pairs = zip(record.rows, expected.rows, strict=True)
    for number, (ours, right) in enumerate(pairs, start=1):
        told = ""
        row = f"{record.row} {number}"
        if not math.isclose(ours[0], right[0], rel_tol=record.close):  # nor is NaN
            ours, right = (f"{loss[0]:.{record.digits}f}" for loss in (ours, right))
            told = f"The loss of {row} is {ours}; that of {what} is {right}."
        elif ours[1:] != right[1:]:
            told = f"The count of {row} is {ours[1]} of {ours[2]}; that of "
            told += f"{what} is {right[1]} of {right[2]}."
        if told:
            raise Wrong(told + parting(record, expected, what))
    if not record.setting.steps:
        record.state_dict()


def parting(record, right, what):
    """Return in words where the training parts from a right run.

    Before the first step, or in what `steps` has of one: of a run on another number
    of ranks that is the learning rate alone.
    """
    if record.setting.resume != right.setting.resume:
        return ""  # they begin with different epochs
    alike = len(record.ranks) == len(right.ranks)
    for rank in record.ranks if alike else []:
        if record.initial_weights(rank) != right.initial_weights(rank):
            told = f"\nBefore the first step, the weights of rank {rank} are not "
            return f"{told}those of {what}."
    pairs = zip(steps(record, alike), steps(right, alike), strict=False)
    for step, (ours, theirs) in enumerate(pairs, start=1):
        for fact, number in ours.items():
            other = theirs.get(fact, number)
            if not math.isclose(number, other, rel_tol=record.close):
                told = f"\nIn step {step} {fact} {number:.{record.digits}g}; in "
                return f"{told}{what}, {other:.{record.digits}g}."
    return ""


def steps(record, of_ranks):
    """Yield {what it is, in words: number} for each step of the optimizer."""
    for each in record.together("step"):
        facts = {}
        if of_ranks:
            norm = math.sqrt(sum(step["squares"] for step in each))
            facts[NORM] = norm
        if len(each[0]["rates"]) == 1:
            facts["the learning rate is"] = each[0]["rates"][0]
        yield facts


def expect_gradients(record, expected, what="one process"):
    """Raise Wrong unless each step's gradient is as long as in a run on as many ranks.

    The curve cannot tell: a step of SGD is linear in the gradient, that of others not.
    """
    pairs = zip(steps(record, True), steps(expected, True), strict=False)
    for number, (ours, right) in enumerate(pairs, start=1):
        length, other = ours[NORM], right[NORM]
        if not math.isclose(length, other, rel_tol=record.close):
            digits = record.digits
            raise Wrong(
                f"In step {number} {NORM} {length:.{digits}g}; in {what}, "
                f"{other:.{digits}g}. The optimizer has to get the mean of the ranks' "
                "gradients, for another optimizer to work as well."
            )


def expect_weights(record, expected, what="one process"):
    """Raise Wrong unless model.pth has the tensors of another run, in any order."""
    ours = record.state_dict()
    theirs = expected.state_dict()
    if ours.keys() != theirs.keys():
        raise Wrong(
            f"The keys of model.pth are {', '.join(map(str, ours))}; those of "
            f"{what} are {', '.join(theirs)}."
        )
    for name, value in theirs.items():
        expect_tensor(name, ours[name], value, what)


def expect_tensor(name, ours, theirs, what):
    """Raise Wrong unless a tensor of model.pth equals that of another run, nearly."""
    if ours.shape != theirs.shape:
        shape = " x ".join(map(str, ours.shape))
        right_shape = " x ".join(map(str, theirs.shape))
        raise Wrong(f"{name} is {shape} in model.pth, expected {right_shape}.")
    off = (ours.double() - theirs.double()).abs().max().item()
    limit = CLOSE * max(theirs.double().abs().max().item(), 1e-3)
    if not off <= limit:  # nor is NaN
        raise Wrong(
            f"{name} in model.pth is off by {off:.1e} from {what}, at most "
            f"{limit:.0e} is allowed."
        )
