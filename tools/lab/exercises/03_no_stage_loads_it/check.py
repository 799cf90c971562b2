from tools.lab.checks import Wrong


def check(run):
    for machine in {}, {"fake": "two_gpus"}:  # without a GPU, and with two
        record = run(**machine)
        expected = run.solution(**machine)
        if set(record.locations) - {"cpu"}:
            raise Wrong(
                "What is saved with two GPUs cannot be loaded without one: a file says "
                "where its tensors were, and they have to be on the CPU."
            )
        keys = list(record.state_dict())
        right = list(expected.state_dict())
        if set(keys) != set(right):
            strange = [key for key in keys if key not in right]
            raise Wrong(
                f"The keys of model.pth begin with {[*strange, *keys][0]!r}; stage 1 "
                f"looks for {', '.join(map(repr, right))}."
            )
        record.expect_weights(expected, "the trained network")
        record.expect_curve(expected, "stage 3")
    copied = sum(event["training"] for event in record.of("replicas"))
    steps = len(record.of("step"))
    if copied < steps:
        raise Wrong(
            f"With two GPUs nn.DataParallel was at work in {copied} of {steps} "
            "training steps: it has to stay."
        )
