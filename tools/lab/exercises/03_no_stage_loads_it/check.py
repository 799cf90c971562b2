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
        record.expect_result(expected, "stage 1")
    copied = sum(event["training"] for event in record.of("replicas"))
    steps = len(record.of("step"))
    if copied < steps:
        raise Wrong(
            f"With two GPUs nn.DataParallel was at work in {copied} of {steps} "
            "training steps: it has to stay."
        )
