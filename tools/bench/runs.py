"""Run stages for `make bench`, `trace` and `memory`, with make's variables.

GPUS=0,1 or GPUS=cpu selects devices; NPROC is the number of ranks; ARGS contains extra
flags for the script; OUT is the folder for results.
"""

import os
import tempfile
from pathlib import Path

from onecurve import api
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.stages import BY_NAME, refuse


def run(name, words, processes, timeout=300, **options):
    """Run a script with `api.run`; exit with a message if it fails."""
    result = api.run(words, processes, timeout=timeout, **options)
    if result.returncode:
        refuse(f"{name} failed:\n{result.stderr[-2000:]}")
    return result


def run_text(name, text, processes, out, *flags):
    """Run a script's source, which saves into folder `out`; return its stdout."""
    path = Path(out) / "script.py"
    path.write_text(text)
    usual = BY_NAME[name].usual if name in BY_NAME else ()
    return run(name, [path, "--out", out, *usual, *flags], processes).stdout


def run_stage(stage, images, flags, prepare, several=False, path=None):
    """Run a stage as make would; return its number of processes.

    `images` are the numbers of (training, test) images, or None. `flags` go before
    ARGS. Refuses variables that the stage would ignore, unless it is one of `several`
    stages. For a single stage, prints the first line of its output. `prepare` goes to
    `api.run`, and `path` replaces the stage's own script.
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
