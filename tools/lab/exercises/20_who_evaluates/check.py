import math

from tools.lab.record import Wrong
from tools.lab.setting import THREE_RANKS

STD = 0.02


def check(run):
    still = THREE_RANKS | {"flags": ["--lr", "1e-9"]}  # keeps the initial weights
    record = run(**still)
    for name, tensor in record.state_dict().items():
        expect_normal(name, tensor)
    first = record.initial_weights()
    if run(**still, fake="other_hashes").initial_weights() != first:
        raise Wrong("The same --seed gives different initial weights the second time.")
    if run(flags=["--seed", "1"]).initial_weights() == first:
        raise Wrong("The initial weights are the same with --seed 0 and 1.")


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
