import torch

from tools.lab.checks import Wrong, same_curve, weights
from tools.lab.fake_cuda import two_gpus


def check(run):
    for machine in {}, {"fake": two_gpus}:  # without a GPU, and with two
        record = run(**machine)
        expected = run.solution(**machine)
        if record.needs_gpu:
            raise Wrong(
                "What is saved with two GPUs cannot be loaded without one: a file says "
                "where its tensors were, and they have to be on the CPU."
            )
        ours = weights(record)
        theirs = weights(expected)
        if set(ours) != set(theirs):
            strange = next((key for key in ours if key not in theirs), next(iter(ours)))
            raise Wrong(
                f"The keys of model.pth begin with {strange!r}; stage 1 looks for "
                f"{', '.join(map(repr, theirs))}."
            )
        for key, value in theirs.items():
            if not trained_tensor(ours[key], value):
                raise Wrong(f"{key} in model.pth are not the trained weights.")
        same_curve(record, expected, "stage 3")
    copied = sum(event["training"] for event in record.of("replicas"))
    if copied < len(record.of("step")):
        raise Wrong(
            f"With two GPUs nn.DataParallel was at work in {copied} of "
            f"{len(record.of('step'))} training steps: it has to stay."
        )


def trained_tensor(ours, theirs):
    """Return whether something in a state_dict is the trained tensor, nearly."""
    if not isinstance(ours, torch.Tensor) or ours.shape != theirs.shape:
        return False
    return torch.allclose(ours.double(), theirs.double(), atol=1e-3)
