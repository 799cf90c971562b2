"""Compare Records of a learner's and a correct script; raise Wrong if they differ."""

import math

from tools.lab.record import CLOSE, Wrong

NORM = "the optimizer's gradient norm is"


def expect_curve(record, expected, what="one process"):
    """Raise Wrong unless a run's curve matches another's and model.pth was saved."""
    record.expect_epochs(len(expected.rows))
    pairs = zip(record.rows, expected.rows, strict=True)
    for number, (ours, right) in enumerate(pairs, start=1):
        told = ""
        row = f"{record.row} {number}"
        both = [ours[0], right[0]]
        near = math.isclose(*both, rel_tol=record.close) or all(map(math.isnan, both))
        if not near:
            ours, right = (f"{loss[0]:.{record.digits}f}" for loss in (ours, right))
            told = f"The loss of {row} is {ours}, but in {what} it is {right}."
        elif ours[1:] != right[1:]:
            told = f"The count of {row} is {ours[1]} of {ours[2]}, but in "
            told += f"{what} it is {right[1]} of {right[2]}."
        if told:
            raise Wrong(told + first_difference(record, expected, what))
    if not record.setting.steps:
        record.state_dict()


def first_difference(record, right, what):
    """Describe where training first diverges from a correct run, or return ''.

    Between different numbers of ranks, only the learning rates can be compared.
    """
    if record.setting.resume != right.setting.resume:
        return ""  # they begin at different epochs
    alike = len(record.ranks) == len(right.ranks)
    for rank in record.ranks if alike else []:
        if record.initial_weights(rank) != right.initial_weights(rank):
            told = f"\nBefore the first step, rank {rank}'s weights are not the "
            return f"{told}same as in {what}."
    pairs = zip(steps(record, alike), steps(right, alike), strict=False)
    for step, (ours, theirs) in enumerate(pairs, start=1):
        for fact, number in ours.items():
            other = theirs.get(fact, number)
            if not math.isclose(number, other, rel_tol=record.close):
                told = f"\nIn step {step}, {fact} {number:.{record.digits}g}, but "
                return f"{told}in {what} it is {other:.{record.digits}g}."
    return ""


def steps(record, of_ranks):
    """Yield {fact, in words: number} for each optimizer step."""
    for each in record.together("step"):
        facts = {}
        if of_ranks:
            norm = math.sqrt(sum(step["squares"] for step in each))
            facts[NORM] = norm
        if len(each[0]["rates"]) == 1:
            facts["the learning rate is"] = each[0]["rates"][0]
        yield facts


def expect_gradients(record, expected, what="one process"):
    """Raise Wrong unless gradient norms match those of a run on as many ranks.

    The curve can't show this: with SGD, a smaller learning rate hides a larger norm.
    """
    pairs = zip(steps(record, True), steps(expected, True), strict=False)
    for number, (ours, right) in enumerate(pairs, start=1):
        length, other = ours[NORM], right[NORM]
        if not math.isclose(length, other, rel_tol=record.close):
            digits = record.digits
            raise Wrong(
                f"In step {number}, {NORM} {length:.{digits}g}, but in {what} it is "
                f"{other:.{digits}g}. The optimizer needs the mean of the ranks' "
                "gradients, so that optimizers other than SGD work, too."
            )


def expect_weights(record, expected, what="one process"):
    """Raise Wrong unless model.pth matches another run's, in any order of tensors."""
    ours = record.state_dict()
    theirs = expected.state_dict()
    if ours.keys() != theirs.keys():
        raise Wrong(
            f"The keys of model.pth are {', '.join(map(str, ours))}, but in "
            f"{what} they are {', '.join(theirs)}."
        )
    for name, value in theirs.items():
        expect_tensor(name, ours[name], value, what)


def expect_tensor(name, ours, theirs, what):
    """Raise Wrong unless a tensor of model.pth nearly equals another run's."""
    if ours.shape != theirs.shape:
        shape = " x ".join(map(str, ours.shape))
        right_shape = " x ".join(map(str, theirs.shape))
        raise Wrong(f"{name} is {shape} in model.pth, expected {right_shape}.")
    off = (ours.double() - theirs.double()).abs().max().item()
    limit = CLOSE * max(theirs.double().abs().max().item(), 1e-3)
    if not off <= limit:  # or NaN
        raise Wrong(
            f"{name} in model.pth is off by {off:.1e} compared with {what}; at most "
            f"{limit:.0e} is allowed."
        )
