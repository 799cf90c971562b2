"""Count how many bugs the inspector names, and make tables for the pages."""

import grades

# Which rows of grades.csv a line of the table counts: a set, and whether its versions
# were held back (None: either).
CASES = {
    ("first", "no"): "six kinds of script, bugs that shaped the rules",
    ("first", "yes"): "the same six, other bugs",
    ("new", None): "five kinds, graded once",
    ("unseen", None): "unseen: five more",
    ("blind", None): "unseen: six more",
    ("more", None): "unseen: six of other kinds",
    ("last", None): "unseen: six later ones",
    ("latest", None): "unseen: six still later",
    ("newest", "no"): "unseen: six with ten bugs each",
    ("newest", "yes"): "the same six, other bugs, graded once",
}
FIRST = "first_"  # the prefix of a first grade's columns
PUBLIC = {  # title: whether held back, which grade
    "open: these changed rules": ("no", ""),
    "held back, graded once": ("yes", FIRST),
}
RIGHT = ["versions", "right cause", "at a line of the key"]
GONE = "its line is gone"
OTHERS = ["vague", "missed", "false ok"]  # grades other than right


def table(alignment, headings, rows):
    """Return a Markdown table; `alignment` contains an l or r for each column."""
    marks = {"l": "---", "r": "---:"}
    lines = [headings, [marks[one] for one in alignment], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def versions_of(group, held_back=None):
    """Return the rows of a set's versions that have a bug."""
    found = [row for row in grades.read().values() if row["set"] == group]
    found = [row for row in found if row["held_back"]]
    return [row for row in found if held_back in (None, row["held_back"])]


def count(rows, which):
    """Return {column: number of rows}; `which` is FIRST or "" for the current rules."""
    marks = [row[f"{which}grade"] for row in rows]
    right = [row[f"{which}at_line"] for row in rows if row[f"{which}grade"] == "right"]
    counted = {"versions": len(rows), "right cause": len(right)}
    counted["at a line of the key"] = right.count("yes")
    counted[GONE] = right.count("gone")
    return counted | {grade: marks.count(grade) for grade in OTHERS}


def cases():
    """Return the table of the kinds of script."""
    headings = [*RIGHT, *OTHERS]
    found = []
    for (group, held_back), title in CASES.items():
        rows = versions_of(group, held_back)
        which = FIRST if any(row["first_grade"] for row in rows) else ""
        counted = count(rows, which)
        found.append([title, *(counted[name] for name in headings)])
    return table("lrrrrrr", ["", *headings], found)


def public():
    """Return the table of the public scripts."""
    headings = [*RIGHT, GONE, *OTHERS]
    found = []
    for title, (held_back, which) in PUBLIC.items():
        counted = count(versions_of(grades.PUBLIC, held_back), which)
        found.append([title, *(counted[name] for name in headings)])
    return table("lrrrrrrr", ["", *headings], found)
