"""Each stage's lesson, and a check that the pages explain every hunk."""

from tools.run import diffs
from tools.run.ideas import ideas
from tools.run.stages import refuse

# What each stage teaches, for the pages' tables.
LESSONS = {
    "01_cpu": "the script itself: one process, on the CPU",
    "02_single_gpu": "moving the model and each batch to the GPU",
    "03_dp": "`nn.DataParallel`: one process drives several GPUs",
    "04_ddp": "`DistributedDataParallel`: one process per GPU, on one or more machines",
    "05_ddp_inference": "evaluating on all ranks, counting each test image once",
    "06_model_parallel": "one model split between two GPUs",
    "07_fsdp": "fully sharded: each rank keeps 1/*W* of every tensor",
    "08_tensor_parallel": "each rank computes part of every layer, for the same images",
    "09_pipeline": "each rank has some of the layers; micro-batches keep both busy",
    "10_hybrid": "a grid of ranks: tensor parallel in a row, fully sharded in a column",
    "11_resume": "continuing a stopped run after its last finished epoch",
    "12_sharded_checkpoint": "each rank saves a part; any number of ranks can load it",
    "13_gpt": "the script itself: a transformer that copies, on one process",
    "14_data_parallel": "each rank has some sequences; gradients are added by hand",
    "15_sequence_parallel": "matrices cut by width, and the tokens between them",
    "16_pipeline_1f1b": "each rank has some of the blocks; 1F1B orders the work",
    "17_context_parallel": "each rank has some of the tokens; keys go round in a ring",
    "18_moe": "a mixture of experts: a router sends each token to one of four MLPs",
    "19_expert_parallel": "each rank has some of the experts; tokens are sent to them",
    "20_grid": "rings in the rows of a grid, and FSDP over all of it",
    "21_lost_rank": "ranks die, and the others take the same steps without them",
}


def refuse_unexplained(a, b):
    """Exit unless the page of `b` explains each hunk from `a` once."""
    numbers = sorted(number for idea in ideas(a, b) for number in idea.numbers)
    count = len(diffs.hunks(a, b))
    if numbers != list(range(1, count + 1)):
        refuse(
            f"{b}/README.md explains hunks {numbers}, but there are {count}: put "
            f"each hunk N once into a part <!-- generated: hunk {a} {b} N | TITLE -->"
        )
