"""What happens with lines left out or wrong: `python -m tools.pages.outcomes`.

switches.json has the edits, by hand, and outcomes.json what happened in a run of each:
on CPUs, with gloo, on data/sample. The command runs all of them, which takes minutes,
and writes outcomes.json.
"""

import json
import math
import re
from textwrap import indent

import torch

from onecurve.collectives import is_of_others_end
from onecurve.failures import NOISE
from tools.lab.judge import record_run
from tools.lab.setting import Setting
from tools.pages.switches import STORED, SWITCHES, edited, key, read_outcomes
from tools.run import compare
from tools.run.stages import CPU_PROCESSES, RESUMES, refuse, script

RECORDED = {
    "torch": torch.__version__.partition("+")[0],
    "backend": "gloo",
    "data": "data/sample",
}
LIMIT = 15  # seconds; a run that takes longer hangs


def run(stage, text, processes, fake="", limit=LIMIT):
    """Run the text of a script on so many ranks: return its OUTCOME, whose kind is "".

    A stage that can resume is stopped after the first epoch, and resumed.
    """
    setting = Setting(
        processes=processes if processes > 1 else 0,
        batch=64 - 64 % processes,  # what the ranks can share
        resume=int(stage in RESUMES),
        fake=fake,
    )
    record = record_run(text, stage, setting, limit)
    found = {"kind": "", "curve": [list(row) for row in record.rows]}
    if record.hangs:
        lanes = [lane(record, rank) for rank in record.ranks]
        return {**found, "kind": "hangs", "lanes": lanes}
    if record.status:
        error = first_error(record)
        return {**found, "kind": "crashes", "error": error, "exit": record.status}
    return found


def lane(record, rank):
    """Return how many epochs a rank has trained, and the line at which it waits."""
    setting = record.setting
    steps = math.ceil(setting.train / setting.batch)  # of an epoch
    epochs = len(record.of("step", rank)) // steps
    if "--resume" in record.result.cmd:  # the record is of this second run alone
        epochs += record.setting.resume
    line = record.result.places.get(rank)
    code = record.text.splitlines()[line - 1].strip() if line else None
    return {"rank": rank, "epochs": epochs, "line": line, "code": code}


def first_error(record):
    """Return the error of the first rank that fails by itself, in one line."""
    errors = record.result.errors
    own = [rank for rank in sorted(errors) if not is_of_others_end(errors[rank][0])]
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


def right_curve(stage, processes):
    """Return the curve of a stage's script as it is. Refuses where it does not end."""
    found = run(stage, script(stage).read_text(), processes)
    if found["kind"]:
        refuse(f"{stage} on {processes} ranks, with nothing left out: {found}")
    return found["curve"]


def outcome(switch, processes, right, limit=LIMIT):
    """Return the OUTCOME of a switch; `right` is the curve of the script as it is."""
    stage = switch["stage"]
    text = edited(stage, switch["edits"])
    found = run(stage, text, processes, switch.get("fake", ""), limit)
    if not found["kind"]:
        found["kind"] = "nothing" if equal(found["curve"], right) else "moves"
    return found


def equal(curve, other):
    """Return whether two curves are as long as each other, and equal to rounding."""
    _, near = compare.judge(curve, other)
    return near and len(curve) == len(other)


def record_all():
    """Return what outcomes.json holds: what all switches do, and the right curves."""
    found = {"recorded": RECORDED, "right": {}, "switches": {}}
    for switch in SWITCHES:
        stage = switch["stage"]
        right = found["right"].setdefault(stage, {})
        outcomes = found["switches"].setdefault(key(switch), {})
        for processes in switch["ranks"]:
            ranks = str(processes)
            if ranks not in right:
                right[ranks] = right_curve(stage, processes)
            outcomes[ranks] = outcome(switch, processes, right[ranks])
            print(f"{key(switch)} on {ranks}: {outcomes[ranks]['kind']}", flush=True)
    return found


def layout(value, depth):
    """Return JSON: a line for each key of the objects in a value, down to a depth."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    rows = []
    for name in sorted(value):
        rows.append(f"{json.dumps(name)}: {layout(value[name], depth - 1)}")
    return "{\n" + indent(",\n".join(rows), " ") + "\n}"


def left_out(stage):
    """Return a stage's losses, and those of its switches that are in the page's table.

    They are {name: losses}; without anything left out, the name is "".
    """
    stored = read_outcomes()
    processes = str(CPU_PROCESSES.get(stage, 1))
    curves = {"": stored["right"][stage][processes]}
    for switch in SWITCHES:
        if switch["stage"] == stage and switch.get("table"):
            found = stored["switches"][key(switch)]
            curves[switch["name"]] = found[processes]["curve"]
    return {name: [loss for loss, *_ in curve] for name, curve in curves.items()}


if __name__ == "__main__":
    STORED.write_text(layout(record_all(), 3) + "\n")
