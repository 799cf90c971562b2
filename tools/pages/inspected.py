"""What make inspect says of a script with mistakes, for the page of own scripts."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.run.edit import edit
from tools.run.stages import ROOT, refuse, script

MISTAKES = {
    "own_seed = args.seed + epoch * world_size + rank": "own_seed = args.seed + epoch",
    "with nullcontext() if last else model.no_sync():": "with nullcontext():",
    "            (loss / batches).backward()\n": (
        "            (loss / batches / dist.get_world_size()).backward()\n"
    ),
    "    dist.all_reduce(totals)  # adds up over all ranks\n": "",
}


def inspected():
    """Return what is printed of after_ddp.py with MISTAKES in it, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        path.write_text(edit(script("after_ddp").read_text(), *MISTAKES.items()))
        words = [sys.executable, "-m", "tools.inspect", path]
        words += ["--data", ROOT / "data/sample"]
        result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 1 or result.stderr:
        refuse(f"make inspect found nothing, or failed:\n{result.stderr}")
    text = re.sub(r"(?m)[ ]+$", "", result.stdout.strip())
    return f"```console\n$ make inspect SCRIPT=train.py\n{text}\n```"
