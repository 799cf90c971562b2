from tools.lab.checks import Wrong, same_curve
from tools.lab.fake_cuda import one_gpu

TRY = {"fake": "one_gpu"}

BATCH = {"batch": 100}  # leaves an incomplete one


def check(run):
    record = run(**BATCH, fake=one_gpu)
    same_curve(record, run.solution(**BATCH, fake=one_gpu), "the solution")
    where = sorted({event["device"] for event in record.of("backward")})
    if where != ["cuda:0"]:
        raise Wrong(
            f"The network trained on {' and '.join(where)}, not on the GPU, cuda:0."
        )
