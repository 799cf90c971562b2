from tools.lab.checks import Wrong, same_curve
from tools.lab.standin import one_gpu

TRY = {"stand_in": "one_gpu"}

BATCH = "--batch-size", "100"  # leaves an incomplete one


def check(run):
    seen = run(*BATCH, stand_in=one_gpu)
    same_curve(seen, run.solution(*BATCH, stand_in=one_gpu), "the solution")
    where = sorted({event["device"] for event in seen.of("backward")})
    if where != ["cuda:0"]:
        raise Wrong(
            f"The network trained on {' and '.join(where)}, not on the GPU, cuda:0."
        )
