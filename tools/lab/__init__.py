"""The break-it lab: `make exercises`, `exercise`, `try`, `check`, `hint`, `solution`.

commands    what a learner calls
exercise    finds an exercise: its row in exercises/path.csv, its page, its scripts
track       the exercises of a workshop, in its order
progress    what the learner has begun and solved
room        how far a room of learners is
trying      `make try`: a run of the learner's script beside a right one
setting     how a script is run: by a check, or by `make try`
judge       runs a script as the check of its exercise asks, and judges it
checks      what the exercises' own check.py share
image_run   the same, of which images each rank took
recorder    what each rank writes down of a run
image_recorder  the same, of the images of MNIST
run_record  what the checks know of a run, once it has ended
fake_cuda   fake GPUs on a CPU, for mistakes that show only there

It imports `run`, and `onecurve`.
"""
