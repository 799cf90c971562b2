"""How fast, and why: `make bench`, `trace`, `memory`.

benchmark       measures this machine; `benchmark_rank` is one of its processes
timeline        what each rank does, step by step; `timeline_rank` runs in each
one_gpu         what a single GPU takes for a step, and a transformer's blocks keep
pipeline_step   in which order the ranks of a pipeline work
held            what each rank of each stage holds and sends, for `make memory`
memory_step     what a rank of DDP and of FSDP stores at each moment of a step
scaling         formulas for a transformer on many GPUs; `planned`, tables of them
runs            what they share: make's variables, and runs of a stage
tables          what a benchmark holds, as tables; `figures` draws it
measured.json   the benchmark that the pages show; so are traced.json, one_gpu.json

It imports `run`.
"""
