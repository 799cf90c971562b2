from tools.lab.checks import Wrong, same_curve


def check(run):
    seen = run()
    same_curve(seen, run.solution(), "stage 1")
    steps = seen.of("step")
    kinds = [event["kind"] for event in seen.events[0]]
    second = [n for n, kind in enumerate(kinds) if kind == "step"][len(steps) // 2]
    saved = max(n for n, kind in enumerate(kinds[:second]) if kind == "write")
    if "collective" not in kinds[saved:second]:
        raise Wrong(
            "Nobody waits for rank 0: epoch 2 may begin before epoch 1 is saved."
        )
    if len(seen.of("collective", 0)) != len(seen.of("collective", 1)):
        raise Wrong("Rank 1 does not wait for rank 0 after each epoch.")
