from tools.lab.checks import Wrong, ended, same_curve


def check(run):
    flags = "--batch-size", "63"
    seen, expected = run(*flags, processes=3), run.solution(*flags, processes=3)
    ended(seen)
    for epoch, (ours, theirs) in enumerate(
        zip(seen.rows, expected.rows, strict=False), 1
    ):
        if ours[1:] != theirs[1:]:
            raise Wrong(
                f"Epoch {epoch}: the script counts {ours[1]:g} of {ours[2]:g} as "
                f"correct; the three ranks together had {theirs[1]} of {theirs[2]}."
            )
    same_curve(seen, expected, "stage 5")
