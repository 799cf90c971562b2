"""The break-it lab: `make exercises`, `exercise`, `try`, `check`, `hint`, `solution`.

commands      what a learner calls
exercise      finds an exercise: its folder, its page, its scripts
progress      what the learner has begun and solved; the track of a workshop
watch         `make watch`: judges whenever a file is saved
trying        `make try`: a run of the learner's script beside a right one
setting       how a script is run: by a check, or by `make try`
judge         runs a script as its exercise asks, and judges it
expectations  what a single exercise asks of a run, by name
record        what is known of a run that has ended, and expected of it
recorder      what each rank writes down, besides what the judge of all scripts does
answers       right and wrong answers, for the tests and the handouts
fake_cuda     fake GPUs on a CPU, for mistakes that show only there

It imports `run`, and `onecurve`.
"""
