"""What is replaced in a watched rank: the names of collectives and of clocks.

Where a public hook sees as much, that is taken instead: of an optimizer's steps, of
files that Python opens or renames, of tensor functions.
"""

COLLECTIVES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
COLLECTIVES += ["all_gather", "all_gather_object", "broadcast_object_list"]
COLLECTIVES += ["all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"]
COLLECTIVES += ["gather", "scatter", "gather_object", "scatter_object_list"]
COLLECTIVES += ["all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv"]

CLOCKS = ["perf_counter", "monotonic", "time", "process_time"]
CLOCKS += [f"{name}_ns" for name in CLOCKS]
