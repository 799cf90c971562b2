import math

from tools.lab.record import Wrong

STD = 0.02


def normal_weights(record, runs):
    """The initial weights are normally distributed and follow from the seed."""
    first = record.initial_weights()
    few = {"processes": 3, "batch": 48, "train": 48, "epochs": 1}
    still = runs(**few, flags=["--lr", "1e-9"])  # keeps the initial weights
    for name, tensor in still.state_dict().items():
        expect_normal(name, tensor)
    if runs(**few, fake="other_hashes").initial_weights() != first:
        raise Wrong("The same --seed gives different initial weights the second time.")
    seen = [first]
    for seed in 1, 77, 1078:
        seen.append(runs(**few, flags=["--seed", seed]).initial_weights())
        if seen[-1] in seen[:-1]:
            raise Wrong(f"The initial weights are the same with --seed 0 and {seed}.")


def expect_normal(name, tensor):
    """Raise Wrong unless a tensor looks normally distributed with deviation STD.

    The relative error of n numbers' deviation is about 1 / sqrt(2 n).
    """
    off = 5 / math.sqrt(2 * tensor.numel())
    std = tensor.double().square().mean().sqrt().item()
    if abs(std / STD - 1) > off:
        raise Wrong(
            f"The initial values of {name} have a standard deviation of {std:.4f}, "
            f"expected {STD}."
        )
    largest = tensor.abs().max().item() / STD
    if tensor.numel() > 100 and largest < 2:  # 1 in 22 normal numbers is larger
        raise Wrong(
            f"No initial value of {name} is larger than {largest:.2f} standard "
            "deviations: they are not normally distributed."
        )
