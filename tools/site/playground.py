"""Write the playground, one HTML page that trains stage 4: `make playground`.

The page needs no network and no server. playground/ has its parts: training.js trains,
page.js is the page around it. The lines of code come from the scripts, and the words of
the verdict from `make compare`.
"""

import base64
import difflib
import gzip
import json
import re
from html import escape
from pathlib import Path

from tools.run import compare, diffs
from tools.run.edit import edit
from tools.run.stages import ROOT, refuse, script

PARTS = Path(__file__).with_name("playground")
PAIR = "02_single_gpu", "04_ddp"
EPOCHS = 10  # that the page trains at most
SWITCHES = [  # `shows` finds the lines in the diff; `edits` leave them out of stage 4
    {
        "name": "sampler",
        "title": "Each rank takes its own images",
        "shows": r"  sampler = |^-    loader = DataLoader",
        "edits": {"DistributedSampler(train, seed": "DistributedSampler(train, 1, 0, seed"},
        "says": "Every rank trains on all images: more steps in an epoch, and a loss that "
        "falls faster, which looks like success.",
    },
    {
        "name": "batch_size",
        "title": "The ranks share a batch",
        "shows": r"^\+    loader = DataLoader",
        "edits": {"args.batch_size // world_size": "args.batch_size"},
        "says": "The batch grows with the number of ranks, at the old learning rate, and an "
        "epoch has fewer steps.",
    },
    {
        "name": "seed",
        "title": "Every rank draws the same weights",
        "shows": "",
        "edits": {"torch.manual_seed(args.seed)": "torch.manual_seed(args.seed + rank)"},
        "says": "No effect, as long as DDP copies the weights of rank 0 to all the others.",
    },
    {
        "name": "ddp",
        "title": "DDP averages the gradients",
        "shows": "ddp_model = ",
        "edits": {"nn.parallel.DistributedDataParallel(model)": "model"},
        "says": "Each rank trains a model of its own on its share of the images. The script "
        "saves that of rank 0 and throws the others away.",
    },
    {
        "name": "init_sync",
        "title": "DDP copies the weights of rank 0",
        "shows": "ddp_model = ",
        "edits": {"DataParallel(model)": "DataParallel(model, init_sync=False)"},
        "says": "No effect, as long as every rank has drawn the same weights.",
    },
    {
        "name": "set_epoch",
        "title": "Each epoch has a new order",
        "shows": r"manual_seed\(args.seed \+|set_epoch",
        "edits": {"        sampler.set_epoch(epoch)": "        #"},
        "says": "Every epoch has the same order. The loss comes so close to the right one "
        "that only the distance shows the bug.",
    },
    {
        "name": "all_reduce",
        "title": "The loss is that of all images",
        "shows": "totals",
        "edits": {"    dist.all_reduce(totals)": "    #"},
        "says": "The training is right. What rank 0 prints is the loss of its own share of "
        "the images.",
    },
]


SWITCH = """
    <article>
      <label><input type="checkbox" role="switch" id="{name}" checked>{title}</label>
      <pre>{lines}</pre>
      <p class="says">{says}</p>
    </article>
"""


def without(edits):
    """Return the lines that edits take out of stage 4, and those that stand instead."""
    text = script(PAIR[1]).read_text()
    left = edit(text, *edits.items())
    changed = list(difflib.ndiff(text.splitlines(), left.splitlines()))
    out = [line[2:].strip() for line in changed if line.startswith("- ")]
    instead = [line[2:].strip() for line in changed if line.startswith("+ ")]
    return out, [line for line in instead if line[0] != "#"]


def code(kind, sign, line):
    """Return a line of code as HTML."""
    return f'<span class="{kind}"><b>{sign}</b>{escape(line)}</span>'


def switch(one):
    """Return a row of SWITCHES as HTML: the switch, its lines, what happens without.

    A line that both stages have has no sign.
    """
    out, instead = without(one["edits"])
    lines = []
    for hunk in diffs.hunks(*PAIR):
        for line in hunk.changed():
            if one["shows"] and re.search(one["shows"], line):
                lines.append((line[0], line[1:].strip()))
    shown = []
    for sign, line in lines or [(" ", line) for line in out]:
        kind = {"-": "old", "+": "new", " ": "same"}[sign]
        shown.append(code(f"{kind} out" if line in out else kind, sign, line))
    shown += [code("mistake", "!", line) for line in instead]
    return SWITCH.format(**one, lines="".join(shown))


def digits():
    """Return the pixels and labels of data/sample: training, then test, as base64."""
    raw = ROOT / "data" / "sample" / "MNIST" / "raw"
    parts = []
    for name in "train", "t10k":
        parts.append((raw / f"{name}-images-idx3-ubyte").read_bytes()[16:])
        parts.append((raw / f"{name}-labels-idx1-ubyte").read_bytes()[8:])
    return base64.b64encode(gzip.compress(b"".join(parts), mtime=0)).decode()


def write(path, home="Six scripts, one loss curve"):
    """Write the page to `path`; `home` is HTML, what stands above its title."""
    data = {
        "allowed": [compare.allowed(epoch) for epoch in range(1, EPOCHS + 1)],
        "counts": compare.COUNTS,
        "small": compare.SMALL,
        "causes": compare.CAUSES,
        "digits": digits(),
    }
    switches = "".join(map(switch, SWITCHES))
    parts = {"home": home, "switches": switches, "data": json.dumps(data)}
    for name in "style.css", "training.js", "page.js":
        parts[name] = (PARTS / name).read_text()
    page = (PARTS / "page.html").read_text()
    page = re.sub(r"{{([a-z.]+)}}", lambda found: parts[found[1]], page)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page)


if __name__ == "__main__":
    target = ROOT / "runs" / "playground.html"
    try:
        write(target)
    except OSError as error:
        refuse(f"cannot write {target}: {error.strerror}")
    print(target.as_uri())
