from tools.lab.checks import Wrong, same_curve
from tools.lab.standin import one_gpu


def check(run):
    seen = run(stand_in=one_gpu)
    same_curve(seen, run.solution(stand_in=one_gpu), "the CPU")
    where = {event["device"] for event in seen.of("forward")}
    if where != {"cuda:0"}:
        raise Wrong(
            f"The network computed on {', '.join(where)}, not on the GPU, cuda:0."
        )
