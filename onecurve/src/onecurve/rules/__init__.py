"""The rules: one module per finding, named after it.

A module's docstring says what is wrong and why no one notices. RULES.md and `onecurve
--explain NAME` print it between the message and the fix. Its constants:

LEVEL    ERROR (was seen to happen), SLOW (only costs time) or LOOK (may be meant)
MESSAGE  the report's line, with {facts} from `found`

and, if needed:

FIX      what to change
FOLLOWS  names of findings that follow from this one; they become its details
HIDDEN   True: next to its cause, this finding isn't even a detail
ONCE     True: only the first such finding is shown
RANKS    whose events `find` gets: "each" (the default: all, at least two), "own
         batches" (one rank of each tensor-parallel group) or "one" (even of one rank)
ORIGIN   pattern of the statement to point to, among those that set the value

`find(seen)` yields `found(line, details, **facts)` for one run's events, which
watch/events.csv lists. `find_by_world(comparison)` does so for what depends on the
number of ranks. Without either, a comment says where a finding is made: by a listener
with `log.found(NAME)`, or with `finding(NAME, line)`.
"""

from importlib import import_module
from pkgutil import iter_modules

from onecurve.evidence.found import found

CONSTANTS = {"LEVEL", "MESSAGE", "FIX", "FOLLOWS", "HIDDEN", "ONCE", "RANKS", "ORIGIN"}
# Causes come before consequences. Rules that aren't named here come last.
ORDER = """
    fails hang gradient added weights partial_checkpoint no_gradient not_optimized
    loaded gather_without_gradient not_finite schedule hash_seed samples
    overlap datasets batches other_batches order random extra_exchanges exchange clip
    evaluated evaluated_twice evaluated_weights buffers different_collectives same_file
    decision_by_rank printed by_world
"""


class Rule:
    """What a rule's module says, as attributes in lower case."""

    fix, follows, hidden, once, ranks, origin = "", (), False, False, "each", None

    def __init__(self, name):
        module = import_module(f"{__name__}.{name}")
        self.name = name
        self.means = " ".join(module.__doc__.split())
        for word in CONSTANTS & vars(module).keys():
            setattr(self, word.lower(), getattr(module, word))
        self.find = getattr(module, "find", lambda seen: ())
        self.find_by_world = getattr(module, "find_by_world", lambda comparison: ())

    def fill_in(self, one):
        """Add to a Finding what the rule says."""
        one.name = self.name
        one.level = one.level or self.level
        one.what = self.message.format(**one.facts)
        one.fix = one.fix or self.fix
        return one


HERE = sorted(module.name for module in iter_modules(__path__))
RULES = {name: Rule(name) for name in dict.fromkeys(ORDER.split() + HERE)}


def finding(rule, line, details=(), /, **options):
    """Return a Finding of a rule, by name; `options` are those of `found`."""
    return RULES[rule].fill_in(found(line, details, **options))


def filled_in(name, all_found):
    """Return a list of a rule's Findings."""
    return [RULES[name].fill_in(one) for one in all_found]


def findings(seen):
    """Return what all rules find in one run."""
    takers = seen.takers()
    logged = {}
    for event in seen.of("found"):
        one = found(event["line"], event["details"], **event["facts"])
        logged.setdefault(event["rule"], one)
    made = []
    for name, rule in RULES.items():
        made += filled_in(name, [logged[name]] if name in logged else [])
        looked_at = takers if rule.ranks == "own batches" else seen
        if len(looked_at.ranks) > 1 or rule.ranks == "one":
            made += filled_in(name, rule.find(looked_at))
    return made


def findings_by_world(comparison):
    """Return what all rules find in a Comparison of runs on several ranks and one."""
    made = []
    for name, rule in RULES.items():
        made += filled_in(name, rule.find_by_world(comparison))
    return made
