"""Does a script compute on several ranks what it computes on one?

__main__   make inspect: three runs of the script, and the report
rank       what a rank does before the script begins
files      what the script writes goes to a folder of the run's own
cpu        a script that asks for GPUs gets CPUs
hooks      what is written down of a run as it is
numbers    what rank 0 prints, and what the others would
equal      the gradients of several ranks, and of one with the same batches
exact      float64, no dropout, fixed statistics: for `equal`
rules      the known mistakes, each found in the events of a run
report     the findings, as text
"""
