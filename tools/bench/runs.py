"""What `make bench`, `trace` and `memory` share: make's variables, runs of a stage.

GPUS=0,1 or cpu says on what; NPROC on how many ranks; ARGS has further flags of the
script; OUT is the folder for what is written.
"""

import os
import shlex
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tools.run import gpus, ranks
from tools.run.sample import cut
from tools.run.stages import BY_NAME, ROOT, refuse, refuse_unwritable, script


def take_gpus():
    """Take the GPUs of GPUS= alone, from now on; refuses those that are not there."""
    os.chdir(ROOT)
    if os.environ.get("GPUS"):
        # CUDA looks at CUDA_VISIBLE_DEVICES once, so another process asks what it has.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
            chosen = other.submit(gpus.choose_gpus, os.environ["GPUS"]).result()
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)


def make_folder():
    """Return the folder of OUT=, made; refuses one that cannot be written."""
    out = Path(os.environ.get("OUT") or "runs").absolute()
    refuse_unwritable(out, "name a folder, OUT=DIR")
    out.mkdir(parents=True, exist_ok=True)
    return out


def count_ranks(stage):
    """Return on how many ranks a stage runs, which NPROC may say; 0: without torchrun.

    Where NPROC does not count, the stage runs in one process, or on two ranks alone.
    """
    row = BY_NAME[stage]
    given = os.environ.get("NPROC")
    if given and row.cpu_processes and not row.only_processes:
        return gpus.positive("NPROC", given)
    return row.cpu_processes


def run_stage(stage, images, flags, prepare):
    """Run a stage on some (training, test) images; return the number of processes.

    `prepare` is what `ranks.run` calls in each of them first. They run on the CPU where
    there is no GPU for each.
    """
    number = count_ranks(stage)
    count = gpus.count_gpus()
    on_gpus = count >= max(number, 1)
    if count and not on_gpus:
        print(f"{stage}: {number} ranks need as many GPUs: it runs on the CPU")
    with tempfile.TemporaryDirectory() as folder:
        words = [script(stage), "--data", cut(Path(folder) / "data", *images)]
        words += ["--out", folder, *flags, *shlex.split(os.environ.get("ARGS", ""))]
        result = ranks.run(words, number, timeout=300, prepare=prepare, gpus=on_gpus)
    if result.returncode:
        reasons = [text for text, _ in result.errors.values() if text]
        refuse(f"{stage}: {[*reasons, result.stderr[-2000:]][0]}")
    return number or 1
