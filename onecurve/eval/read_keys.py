"""Cases to measure the judge by: training scripts, right and with one mistake each.

How they were made: six kinds of script that real people write, each by itself, then
some ten versions of each with one silent mistake, and a key for every version, all by
somebody who had not read the judge's rules, before any rule was changed for their sake.
Five more kinds, with six versions each, were made so when the rules were there: clip,
gan, lora, recsys and vit. Nobody changes a rule for their sake before they are graded.
Five more were written when the rules were done, by somebody who had not seen them:
detector, distill, ppo, speech and translate. One of them, distill, turned out not to be
right: the buffers of its average differ between the ranks. When what these had shown
was mended, somebody else wrote six: forecast, graphs, mlm, segment, triplets and vae.
While the rules were changed for what those had shown, two more people wrote three
each, who knew none: dino, dpo and pinn, and packed, ranking and tabular.
And when the rules were changed for these as well, others wrote superres, moe and
keypoints, and flow, survival and codec. Then three more, each two: nerf and maml,
kgraph and multitask, qat and anomaly.
At last three people wrote two each, with ten mistakes, of which every second is held
back as at first: captions and dqn, ocr and mae, skipgram and instruct.
A case is a folder of `cases/`: `train.py`, which is right, and `mistakes.diff`. There
`-` is a text that the script has once, `+` is what stands there instead, and before
them stand, one a line:

mistake: what was done
line: pieces of the wrong script's lines, by ` | `; a report has to point to one of them
cause: what goes wrong, in a sentence
accept: causes that a report may state in its own words, by ` | `; one of them is enough
not ok: what a report must not call ok, of PARTS
held back: whether nobody looks at it, or measures by it, while the rules are changed
"""

from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "cases"
FIELDS = ["mistake", "line", "cause", "accept", "not ok", "held back"]
# What a report speaks about, and when that is ok.
PARTS = {
    "gradients": "the ranks compute the gradient of one process",
    "weights": "they are equal on all ranks, and are trained",
    "samples": "each rank trains on its share, and together on all",
    "order": "each epoch has a new one",
    "random numbers": "what should differ by rank does",
    "numbers": "what is printed is that of all ranks",
    "evaluation": "all of the set, each sample once, by one model",
    "schedule": "the learning rate is that of one process in every step",
    "average": "the average of the weights is equal on all ranks",
    "buffers": "they are equal on all ranks where they count",
    "files": "one rank writes a file",
    "checkpoint": "it has all of what was trained, and is what is loaded",
}


@dataclass
class Version:
    """A script with one mistake, and the key to it."""

    case: str  # the folder's name
    mistake: str
    lines: list  # pieces of the script's lines, each a text
    cause: str
    accept: list  # texts
    not_ok: list  # of PARTS
    held_back: bool
    old: str
    new: str

    def script(self):
        """Return the text of the wrong script. Raises ValueError if it cannot."""
        text = (CASES / self.case / "train.py").read_text()
        if text.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.case}: {self.old!r} is there not once")
        return text.replace(self.old, self.new)


def read(case):
    """Return the Versions of a case. Raises KeyError or ValueError at a wrong key."""
    found = []
    text = (CASES / case / "mistakes.diff").read_text()
    for part in text.split("\n\n"):
        lines = part.splitlines()
        old = [line[1:] for line in lines if line.startswith("-")]
        new = [line[1:] for line in lines if line.startswith("+")]
        rest = [line for line in lines if line[:1] not in ("-", "+", "#", "")]
        facts = dict(line.split(": ", 1) for line in rest)
        if facts:
            found.append(version(case, facts, "\n".join(old), "\n".join(new)))
    return found


def version(case, facts, old, new):
    """Return a Version of the facts in its fields, {name: text}."""
    if list(facts) != FIELDS:
        raise ValueError(f"{case}: {list(facts)}, not {FIELDS}")
    if not new:  # whole lines go
        old += "\n"
    return Version(
        case,
        facts["mistake"],
        facts["line"].split(" | "),
        facts["cause"],
        facts["accept"].split(" | "),
        facts["not ok"].split(", "),
        {"yes": True, "no": False}[facts["held back"]],
        old,
        new,
    )
