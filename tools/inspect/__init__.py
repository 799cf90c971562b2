"""Does a script compute on several ranks what it computes on one?

__main__   make inspect: the command line
runs       three runs of the script, and what they show
rank       what a rank does before the script begins
files      what the script writes goes to a folder of the run's own
pretend    a script that asks for GPUs gets CPUs
loaders    what is written down of its loaders
hooks      what is written down of its network, optimizers and the rest
samples    digests of samples and random generators, which both use
numbers    what one rank prints, and what the others would
equal      what several ranks compute, and one with the same batches
exact      float64, no dropout, fixed statistics: for `equal`
gradients  whether several ranks and one have the same gradients
seen       what was written down, for the rules
shares     rules: which samples a rank takes
steps      rules: weights, gradients, learning rates
rules      rules: all others, and the list of all
findings   what a rule finds, by the table findings.csv
report     the findings, as text
"""
