"""Generated parts of stages 11 and 12: outputs of runs resumed from a checkpoint."""

import tempfile

from tools.bench.runs import run, run_text
from tools.pages.outcomes import read_outcomes
from tools.pages.variants import console, printed_losses
from tools.run.edit import edit
from tools.run.stages import CPU_PROCESSES, script

MOMENTUM = ("lr=args.lr)", "lr=args.lr, momentum=0.9)")
SHARDED = "12_sharded_checkpoint"
STATE = (
    '        state = {"model": weights, "optimizer": optim_state}\n        dcp.load('
)
PUT_BACK = (
    '        dcp_state.set_optimizer_state_dict(model, optimizer, state["optimizer"])\n'
)
# The part whose removal resets momentum to 0, and the edits.
FORGOTTEN = {
    "11_resume": (
        "optimizer.load_state_dict",
        [('        optimizer.load_state_dict(state["optimizer"])\n', "")],
    ),
    SHARDED: (
        "the optimizer in state",
        [(STATE, STATE.replace(', "optimizer": optim_state', "")), (PUT_BACK, "")],
    ),
}
WIDTHS = 2, 3, 1  # ranks in epochs 1, 2 and 3
SHARED = "--batch-size", "96"  # images a step, divisible by each


def go_on(stage, text, *flags):
    """Return the losses of epochs 2 and 3 of a run stopped after epoch 1."""
    with tempfile.TemporaryDirectory() as folder:
        begin = stage, text, CPU_PROCESSES[stage], folder, *flags, "--epochs"
        run_text(*begin, 1)
        return printed_losses(run_text(*begin, 3, "--resume"))


def resumed(stage):
    """Return the losses of a stage's resumed runs, with and without optimizer state.

    For stage 11, also of the run without the broadcast, which fails (outcomes.json).
    """
    right = script(stage).read_text()
    with_momentum = edit(right, MOMENTUM)
    name, edits = FORGOTTEN[stage]
    forgotten = edit(with_momentum, *edits)
    rows = {"(nothing)": go_on(stage, right)}
    if stage == "11_resume":
        found = read_outcomes()["switches"]["11_resume/broadcast"]["2"]
        curve = [f"{loss:.6f}" for loss, *_ in found["curve"]]
        error = f"rank 1 fails: {found['error']}"
        rows["broadcast_object_list"] = [*curve[1:], error]
    rows["(nothing), with momentum"] = go_on(stage, with_momentum, "--lr", "0.02")
    rows[f"{name}, with momentum"] = go_on(stage, forgotten, "--lr", "0.02")
    width = max(map(len, rows))
    lines = ["  ".join(["left out".ljust(width), "epoch 2 ", "epoch 3"])]
    for left_out, row in rows.items():
        lines.append("  ".join([left_out.ljust(width), *row]))
    return console(*lines)


def widths():
    """Return the losses of stage 12 on 2, 3 and 1 ranks, next to stage 1's."""
    lines = ["         ranks  loss      stage 1, 96 images a step"]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--out", folder, *SHARED]
        alone = printed_losses(run("01_cpu", [script("01_cpu"), *flags], None).stdout)
        for epoch, ranks in enumerate(WIDTHS, 1):
            words = [script(SHARDED), *flags, "--epochs", epoch]
            words += ["--resume"] if epoch > 1 else []
            (loss,) = printed_losses(run(SHARDED, words, ranks).stdout)
            lines.append(f"epoch {epoch}  {ranks:5}  {loss}  {alone[epoch - 1]}")
    return console(*lines)
