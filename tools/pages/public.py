"""Say on the front page how many public scripts have a bug, by the inspector's page."""

import re

from tools.run.stages import ROOT

PAGE = ROOT / "onecurve/PUBLIC.md"
COUNT = re.compile(r"Of (\d+) scripts, (\d+) have .*, and (\d+) more in what they")


def count():
    """Return in how many public scripts something is wrong in silence, a sentence."""
    scripts, training, more = COUNT.search(PAGE.read_text()).groups()
    return (
        f"Such mistakes are not rare. Of {scripts} public training scripts that "
        f"many have copied, {training} have one in the training\n"
        f"itself, and {more} more in what they evaluate, print or save: "
        "[which, and how you see it](onecurve/PUBLIC.md)."
    )
