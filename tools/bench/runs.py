"""What `make bench`, `trace` and `memory` share: make's variables, runs of a stage.

GPUS=0,1 or cpu says on what; NPROC on how many ranks; ARGS has further flags of the
script; OUT is the folder for what is written.
"""

import os
import tempfile
from pathlib import Path

from onecurve import api
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.stages import refuse


def run(name, words, processes, timeout=300, **options):
    """Run a script as `ranks.run` does; end the program with a line if it fails."""
    result = api.run(words, processes, timeout=timeout, **options)
    if result.returncode:
        refuse(f"{name} failed:\n{result.stderr[-2000:]}")
    return result


def run_text(name, text, processes, out, *flags):
    """Run the text of a script that saves into a folder; return what it prints."""
    path = Path(out) / "script.py"
    path.write_text(text)
    return run(name, [path, "--out", out, *flags], processes).stdout


def run_stage(stage, images, flags, prepare, several=False, path=None):
    """Run a stage as make would, with `prepare` called first; return its processes.

    It gets (training, test) images, None where it has none, and `flags`, a text, before
    those of ARGS. What it would ignore is refused, unless it is for others of `several`
    stages. Of one stage it prints on what that ran. `prepare` is that of `ranks.run`,
    and `path` another script than the stage's own.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "OUT": folder}
        if images:
            settings["DATA"] = str(cut(Path(folder) / "data", *images))
        settings["ARGS"] = f"{flags} {os.environ.get('ARGS', '')}"
        plan = make_plan(stage, settings, several)
        options = {"gpus": plan.environment.get("CUDA_VISIBLE_DEVICES")}
        options |= {"timeout": 300, "prepare": prepare}
        words = [path, *plan.words[1:]] if path else plan.words
        result = api.run(words, plan.processes, **options)
    if result.returncode:
        reasons = [text for text, _ in result.errors.values() if text]
        refuse(f"{stage}: {[*reasons, result.stderr[-2000:]][0]}")
    if not several:
        print(result.stdout.partition("\n")[0])
    return plan.processes or 1
