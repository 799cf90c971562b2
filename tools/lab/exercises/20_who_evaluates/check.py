from tools.lab.record import Wrong

STD = 0.02


def check(run):
    flags = ["--lr", "1e-9"]  # the weights stay as at the start
    record = run(flags=flags)
    for name, tensor in record.state_dict().items():
        expect_normal(name, tensor)
    first = record.initial_weights()
    if run(flags=["--seed", "1"]).initial_weights() == first:
        raise Wrong("The initial weights are the same with --seed 0 and 1.")


def expect_normal(name, tensor):
    """Raise Wrong unless a tensor may be drawn from a normal distribution, by STD."""
    largest = tensor.abs().max().item() / STD
    if tensor.numel() > 100 and largest < 2:  # 1 in 22 normal numbers is larger
        raise Wrong(
            f"No initial value of {name} is larger than {largest:.2f} standard "
            "deviations: they are not normally distributed."
        )
