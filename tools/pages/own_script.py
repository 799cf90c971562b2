"""The curves of the three scripts in beyond/own_script/, for its page."""

import re

from tools.run import ranks
from tools.run.stages import OWN, refuse, script

PROCESSES = {"before": None, "after_ddp": 2, "after_fsdp": 2}
NOT_RANDOM = ["--dropout", "0", "--no-augment"]
SETTINGS = {
    "GroupNorm, no dropout, no augmentation": ["--norm", "group", *NOT_RANDOM],
    "BatchNorm, no dropout, no augmentation": NOT_RANDOM,
    "BatchNorm, dropout, augmentation": [],
}


def own_curves():
    """Return the losses of each script in each setting, in float64, on the sample."""
    rows = ["```console"]
    for title, flags in SETTINGS.items():
        rows.append(f"{title:40}epoch 1   epoch 2   epoch 3")
        for name in OWN:
            words = [script(name), "--out", "runs/own_script", *flags]
            result = ranks.run(words, PROCESSES[name], float64=True)
            if result.returncode:
                refuse(f"{name} failed, so its page has no curve:\n{result.stderr}")
            losses = re.findall(r"loss (\S+)", result.stdout)
            counts = re.findall(r"test (\S+)", result.stdout)
            shown = "  ".join([f"{name:38}", *losses, f"test {counts[-1]}"])
            rows.append(shown)
    return "\n".join([*rows, "```"])
