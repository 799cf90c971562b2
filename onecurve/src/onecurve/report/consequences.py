"""Drop findings without consequences, and name what follows from the others.

Some rules infer a bug from how a script does something. Their findings are dropped if
the ranks' weights stay equal and gradients and printed numbers match one process's.
"""

from onecurve.evidence import printed
from onecurve.evidence.samples import ALIKE, own_losses
from onecurve.evidence.seen import first_split
from onecurve.rules import RULES

AVERAGED = "an all_reduce later makes the weights equal again, as in local SGD"


def weights_agree(found, seen):
    """Return whether the ranks' weights were equal after each of several steps."""
    return len(seen.of("step")) > 1 and "weights" not in [one.name for one in found]


def are_averaged(seen):
    """Return whether an all_reduce makes different weights equal again."""
    own = seen.own_parts()
    differed = None  # time
    for by_rank in seen.batches_begun():
        if len(by_rank) < len(seen.ranks) or not by_rank[0]["steps"]:
            continue
        time = by_rank[0]["time"]
        if first_split([event["weights"] for event in by_rank.values()], own):
            differed = time
        elif differed:
            calls = [one for one in seen.of("collective_call") if one["whole"]]
            names = [one["name"] for one in calls if differed < one["time"] < time]
            return "all_reduce" in names
    return False


def with_consequence(found, seen, told):
    """Return the findings to keep; `told` is the Comparison with one process."""
    if not weights_agree(found, seen):
        averaged = are_averaged(seen)
        for finding in found:
            if averaged and finding.name in ("exchange", "weights", "clip"):
                finding.level = "LOOK"
                finding.details.append(AVERAGED)
        return found
    several = told.runs.get("several")
    one = told.runs.get("one" if told.equal else "alone0")
    is_compared = bool(one) and bool(told.equal or told.alone)

    def is_harmless(finding):
        if finding.name in ("exchange", "clip"):
            return is_compared and told.equal
        if finding.name == "datasets" and finding.level == "LOOK":
            runs = (seen.takers(), one) if is_compared else ()
            sizes = [sum(each["size"] for each in run.first_epochs()) for run in runs]
            return len(set(sizes)) == 1  # parts of one process's
        if finding.name == "samples":
            return several and own_losses(several.takers())
        if finding.name == "evaluated_twice" and finding.fix != ALIKE:
            return is_compared and printed.evaluations_agree(several, one)
        if finding.name == "printed":
            return is_compared and printed.agrees(finding.facts["text"], several, one)
        return False

    return [finding for finding in found if not is_harmless(finding)]


def name_what_follows(found):
    """Return findings without duplicates; each cause names its consequences."""
    kept = []
    for one in found:
        rule = RULES[one.name]
        causes = [cause for cause in found if one.name in RULES[cause.name].follows]
        again = one.name in [other.name for other in kept]
        if causes and not rule.hidden:
            causes[0].consequences.append(one.what)
            causes[0].level = min(causes[0].level, one.level)  # an ERROR was seen
            causes[0].details.append(f"consequence: {one.what}")
        elif not causes and not (again and rule.once):
            kept.append(one)
    return kept
