"""How fast, and why: `make bench`, `trace`, `memory`, `predict`.

benchmark       measures this machine; `benchmark_rank` is one of its processes, `loops`
                an epoch by other loops, `peers` the same network by Lightning and by
                Accelerate
timeline        what each process does, step by step; `timeline_rank` runs in each
memory          what each rank of each stage holds; `memory_rank` measures it there
predict         a simple model of training on many GPUs, fitted to a benchmark
tables          what a benchmark holds, as Markdown; `figures` draws it
measured.json   the benchmark that the pages show

It imports `run`.
"""
