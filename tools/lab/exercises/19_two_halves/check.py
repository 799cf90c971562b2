from tools.lab.checks import Wrong, same_curve, weights
from tools.lab.fake_cuda import two_gpus

TRY = {"fake": "two_gpus"}

BATCH = {"batch": 100}  # leaves an incomplete one


def check(run):
    record = run(**BATCH, fake=two_gpus)
    still = run.solution("--lr", "1e-12", **BATCH, fake=two_gpus)
    ours = weights(record)
    first = weights(still)
    for key, value in ours.items():
        known = key in first and value.shape == first[key].shape
        if known and (value - first[key]).abs().max() < 1e-9:
            raise Wrong(f"{key} did not change in training: nobody steps on it.")
    devices = sorted({event["device"] for event in record.of("backward")})
    if devices != ["cuda:0", "cuda:1"]:
        raise Wrong(
            f"All layers trained on {' and '.join(devices)}: expected one on each GPU."
        )
    same_curve(record, run.solution(**BATCH, fake=two_gpus), "the solution")
