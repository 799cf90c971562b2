from tools.lab.checks import Wrong, same_curve
from tools.lab.fake_cuda import three_gpus, two_gpus

TRY = {"fake": "two_gpus"}

BATCH = "--batch-size", "73"  # the last batch is one image, for one GPU


def check(run):
    expected = run.solution(*BATCH)
    for fake, count in (two_gpus, 2), (three_gpus, 3):
        record = run(*BATCH, fake=fake)
        same_curve(record, expected, "one GPU")
        copies = [e["devices"] for e in record.of("replicas") if e["training"]]
        steps = len(record.of("step"))
        if len(copies) < steps:
            raise Wrong(
                f"On {count} GPUs nn.DataParallel copied the network in {len(copies)} "
                f"of {steps} training steps: the GPUs have to share the work."
            )
        most = max(map(len, copies))
        if most < count:
            raise Wrong(
                f"On {count} GPUs nn.DataParallel copied the network to {most}: all of "
                "them have to share the work."
            )
