"""Running the stages: `make all`, `cpu`, `diff`, `compare`, `data`, `doctor`.

stages      a row for each stage: what every tool has to know about it
launch      `make ddp GPUS=0,1`: checks a plan and runs it
results     the folder of a run: what an earlier run has left there is put aside
plan        what a launch runs, made from make's variables without side effects
gpus        which GPUs and cores there are, and those that GPUS= means
supervise   runs a command, and ends with it all that it has started
edit        replaces texts of a script, each there exactly once
diffs       the diff between two stages, which a launch shows
ideas       the ideas of a diff, as a stage's page explains them
compare     are the curves equal? `plots` draws them, in the colors of `palette`
data        fetches all of MNIST, and checks an MNIST root
sample      cuts small MNIST roots from data/sample
doctor      is this machine ready? `probe` is what it starts on each rank
install     makes .venv, and fills it with one of two lists of packages
packages    which packages the commands need, and which of them are missing
inspecting  `make inspect`: runs the inspector with the tutorial's pages
notebooks   `make notebooks`: copies them into workshop/, and opens them

It imports no other package of tools, and of onecurve how processes end.
"""
