from tools.lab import same_curve
from tools.standin import data_parallel


def check(run):
    same_curve(run(stand_in=data_parallel), run.solution(), "one GPU")
