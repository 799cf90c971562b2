from tools.lab.checks import same_curve


def check(run):
    same_curve(run(), run.original(), "stage 10")
