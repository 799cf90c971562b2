"""How fast, and why: `make bench`, `trace`, `predict`.

benchmark       measures this machine; `benchmark_rank` is one of its processes, `loops`
                an epoch by other loops, `peers` the same network by Lightning and by
                Accelerate
timeline        what each process does, step by step; `timeline_rank` runs in each
predict         a simple model of training on many GPUs, fitted to a benchmark
tables          what a benchmark holds, as Markdown; `figures` draws it
measured.json   the benchmark that the pages show

It imports `run`.
"""
