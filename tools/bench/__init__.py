"""How fast, and why: `make bench`, `trace`, `memory`, `predict`.

benchmark       measures this machine; `benchmark_rank` is one of its processes, `loops`
                an epoch by other loops
timeline        what each process does, step by step; `timeline_rank` runs in each
memory          the memory of each rank of each stage; `memory_rank` measures it there
predict         formulas for training on many GPUs
tables          what a benchmark holds, as Markdown; `figures` draws it
saving          how long training stands still for a checkpoint, of stage 12
measured.json   the benchmark that the pages show

It imports `run`.
"""
