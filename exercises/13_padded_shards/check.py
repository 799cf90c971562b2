from collections import Counter

from tools.lab.checks import TEST, Wrong, ended, same_curve


def check(run):
    seen = run("--batch-size", "63", processes=3)
    ended(seen)
    found = Counter()
    for rank in range(3):
        for epoch in seen.epochs(rank, train=False)[:1]:
            found.update(index for batch in epoch for index in batch)
    total = seen.rows[0][2] if seen.rows else 0
    if total != TEST:
        twice = [index for index, count in found.items() if count > 1]
        missing = TEST - len(found)
        raise Wrong(
            f"The script says that it counted {total} test images; there are {TEST}. "
            f"Images that two ranks evaluated: {twice or 'none'}; that none did: "
            f"{missing}."
        )
    same_curve(seen, run.solution("--batch-size", "63", processes=3), "stage 5")
