from tools.lab.checks import same_curve

COUNT = 453  # images: the last batch has 5, in micro-batches of 2, 2 and 1


def check(run):
    same_curve(run(), run.original(), "stage 9")
    what = f"stage 9, with {COUNT} images,"
    same_curve(run(train=COUNT), run.original(train=COUNT), what)
