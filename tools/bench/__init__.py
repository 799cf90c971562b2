"""How fast, and why: `make bench`, `trace`, `predict`.

benchmark       measures this machine; `benchmark_rank` is one of its processes, `peers` the
                same network by Lightning and by Accelerate
timeline        a picture of what each process does, step by step
predict         a simple model of training on many GPUs
measured.json   the measurements that the pages show

It imports `lab`, for its stand-ins, and `run`.
"""
