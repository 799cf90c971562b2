import re
import tempfile
from pathlib import Path

from tools.lab.record import Wrong
from tools.run.stages import ROOT, load_file

AS_ON_GPUS = load_file("as_on_gpus", ROOT / "exercises/as_on_gpus.py")


def checkpoint(record, runs):
    """What --checkpoint prints is right, too."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--checkpoint", Path(folder) / "model.pth"]
        AS_ON_GPUS.torch.save(AS_ON_GPUS.train(), flags[1])
        right = re.findall("test (.*)", runs.solution(flags=flags, processes=1).stdout)
        printed = runs(flags=flags, processes=3).stdout
    if re.findall("test (.*)", printed) != right:
        raise Wrong(
            f"With --checkpoint, 3 processes print {printed.strip()!r}, but the "
            f"network in the file gets {right[0]} right."
        )
