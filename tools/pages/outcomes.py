"""What happens with lines left out or wrong: `python -m tools.pages.outcomes [STAGE …]`.

switches.json has the edits, by hand, and outcomes.json what happened in a run of each:
on CPUs, with gloo, on data/sample. The command runs all of them, or those of some
stages, and writes outcomes.json; with `--check` it says what has changed instead.
"""

import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from tools.lab import fake_cuda
from tools.lab.run_record import NOISE, RunRecord, is_own
from tools.run import compare, ranks
from tools.run.edit import edit
from tools.run.stages import CPU_PROCESSES, RESUMES, ROOT, find_stage, refuse, script

FOLDER = ROOT / "tools" / "pages"
SWITCHES = json.loads((FOLDER / "switches.json").read_text())
STORED = FOLDER / "outcomes.json"
RECORDED = {
    "torch": torch.__version__.partition("+")[0],
    "backend": "gloo",
    "data": "data/sample",
}
IMAGES = 4000  # to train on, in data/sample
LIMIT = 15  # seconds; a run that takes longer hangs


def key(switch):
    """Return the name of a switch in outcomes.json: `04_ddp/set_epoch`."""
    return f"{switch['stage']}/{switch['name']}"


def edited(switch):
    """Return the script of its stage with a switch's edits. Raises ValueError."""
    return edit(script(switch["stage"]).read_text(), *switch["edits"].items())


def prepare(rank, folder, fake):
    """Have a rank count its steps, in a file, and believe in fake GPUs if asked to."""
    if fake:
        getattr(fake_cuda, fake)(lambda *_, **__: None)
    file = os.open(folder / f"steps{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    register_optimizer_step_post_hook(lambda *_: os.write(file, b"."))


def batch_size(processes):
    """Return how many images a step takes: 64, or as many as the ranks can share."""
    return 64 - 64 % processes


def run(stage, text, processes, limit=LIMIT, fake=""):
    """Run the text of a script on so many ranks, and return its OUTCOME without a kind.

    A stage that can resume is stopped after the first epoch, and resumed.
    """
    commands = [["--epochs", 3]]
    if stage in RESUMES:
        commands = [["--epochs", 1], ["--epochs", 3, "--resume"]]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        path = folder / stage / "mnist.py"
        path.parent.mkdir()
        path.write_text(text)
        words = [path, "--data", RECORDED["data"], "--out", folder / "out"]
        words += ["--batch-size", batch_size(processes)]
        count = None if processes == 1 else processes
        for flags in commands:
            asked = prepare, folder, fake
            try:
                result = ranks.run([*words, *flags], count, timeout=limit, prepare=asked)
            except ranks.TimedOut as error:
                result = error
            if getattr(result, "returncode", None) != 0:
                break
        record = RunRecord(
            events=[[]] * processes, result=result, out=folder / "out", text=text
        )
        return described(record)


def described(record):
    """Return the OUTCOME of a RunRecord, without its kind where it ends well."""
    found = {"curve": []}
    if (record.out / "metrics.csv").exists():
        found["curve"] = [list(row) for row in compare.read(record.out / "metrics.csv")]
    if record.hangs:
        lanes = [lane(record, rank) for rank in record.ranks]
        return {"kind": "hangs", **found, "lanes": lanes}
    if record.status:
        error = first_error(record)
        return {"kind": "crashes", **found, "error": error, "exit": record.status}
    return found


def lane(record, rank):
    """Return how many epochs a rank has trained, and the line at which it waits."""
    steps = record.out.with_name(f"steps{rank}").stat().st_size
    steps_of_an_epoch = math.ceil(IMAGES / batch_size(len(record.events)))
    line = record.result.places.get(rank)
    code = record.text.splitlines()[line - 1].strip() if line else None
    return {"rank": rank, "epochs": steps // steps_of_an_epoch, "line": line, "code": code}


def first_error(record):
    """Return the error of the first rank that fails by itself, in one line."""
    errors = record.result.errors
    own = [rank for rank in sorted(errors) if is_own(errors[rank])]
    aborted = re.findall(r"what\(\): .+", record.result.stderr)  # of C++
    text = "Connection closed by peer"  # all that the others say of a rank that is gone
    if aborted:
        text = aborted[0]
    elif own:
        text, _ = errors[own[0]]
    text = text.replace(f"{record.out.parent}/", "")
    first, *more = re.sub(NOISE, "", text).splitlines()
    if first.endswith(":") and more:  # a heading
        first += f" {more[0].strip()}"
    return first


def outcome(switch, processes, right, limit=LIMIT):
    """Return the OUTCOME of a switch; `right` is the curve of the script as it is."""
    fake = switch.get("fake", "")
    found = run(switch["stage"], edited(switch), processes, limit, fake)
    if "kind" not in found:
        _, equal = compare.judge(found["curve"], right)
        whole = equal and len(found["curve"]) == len(right)
        found["kind"] = "nothing" if whole else "moves"
    return found


def record(stages):
    """Return all outcomes of the switches of stages, as in outcomes.json."""
    found = {"recorded": RECORDED, "right": {}, "switches": {}}
    for switch in SWITCHES:
        stage = switch["stage"]
        if stage not in stages:
            continue
        right = found["right"].setdefault(stage, {})
        outcomes = {}
        for processes in switch["ranks"]:
            if str(processes) not in right:
                text = script(stage).read_text()
                right[str(processes)] = run(stage, text, processes)["curve"]
            curve = right[str(processes)]
            outcomes[str(processes)] = outcome(switch, processes, curve)
            kind = outcomes[str(processes)]["kind"]
            print(f"{key(switch)} on {processes}: {kind}", flush=True)
        found["switches"][key(switch)] = outcomes
    return found


def read():
    """Return what outcomes.json holds."""
    return json.loads(STORED.read_text())


def layout(value, depth, indent=""):
    """Return JSON: a line for each key of the objects in a value, down to a depth."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    inner = indent + " "
    rows = []
    for name in sorted(value):
        rows.append(f"{inner}{json.dumps(name)}: {layout(value[name], depth - 1, inner)}")
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def same(old, new):
    """Return whether two OUTCOMEs are the same, the curves up to rounding."""
    _, equal = compare.judge(old["curve"], new["curve"])
    if not equal or len(old["curve"]) != len(new["curve"]):
        return False
    return {**old, "curve": None} == {**new, "curve": None}


def show_changes(old, new):
    """Print which outcomes differ from the stored ones; return how many do."""
    changed = 0
    for name, outcomes in new["switches"].items():
        for processes, found in outcomes.items():
            stored = old["switches"].get(name, {}).get(processes)
            if stored is None or not same(stored, found):
                print(f"{name} on {processes}: {stored}\n  is now {found}")
                changed += 1
    return changed


def left_out(stage):
    """Return a stage's losses, and those of its switches that are in the page's table.

    They are {name: losses}; without anything left out, the name is "".
    """
    stored = read()
    processes = str(CPU_PROCESSES.get(stage, 1))
    curves = {"": stored["right"][stage][processes]}
    for switch in SWITCHES:
        if switch["stage"] == stage and switch.get("table"):
            found = stored["switches"][key(switch)]
            curves[switch["name"]] = found[processes]["curve"]
    return {name: [loss for loss, *_ in curve] for name, curve in curves.items()}


def main():
    words = sys.argv[1:]
    check = "--check" in words
    stages = [find_stage(word) for word in words if word != "--check"]
    stages = stages or list(dict.fromkeys(switch["stage"] for switch in SWITCHES))
    new = record(stages)
    old = read() if STORED.exists() else {"recorded": None, "right": {}, "switches": {}}
    if check:
        if show_changes(old, new):
            refuse("outcomes.json is stale: make outcomes")
        return
    if old["recorded"] == RECORDED:  # what was recorded of other stages stays
        names = {key(switch) for switch in SWITCHES if switch["stage"] not in stages}
        kept = {name: old["switches"][name] for name in names & old["switches"].keys()}
        new["right"] = {**old["right"], **new["right"]}
        new["switches"] |= kept
    STORED.write_text(layout(new, 3) + "\n")


if __name__ == "__main__":
    main()
