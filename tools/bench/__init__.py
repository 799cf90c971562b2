"""How fast, and why: `make bench`, `trace`, `memory`.

benchmark       measures this machine; `benchmark_rank` is one of its processes
timeline        what each rank does, step by step; `timeline_rank` runs in each
memory          the memory of each rank of each stage; `memory_step` over a step
pipeline_step   in which order the ranks of a pipeline work
held            what each cut of the transformer holds and sends
scaling         formulas for a transformer on many GPUs; `planned`, tables of them
runs            what they share: make's variables, and runs of a stage
tables          what a benchmark holds, as tables; `figures` draws it
measured.json   the benchmark that the pages show; traced.json, the timeline

It imports `run`.
"""
