"""The path through the exercises: four parts, each harder than the one before.

Within a part the order is the one to take. Each part ends with something to build.
"""

PARTS = {
    1: "First steps: devices, files, and a process per GPU",
    2: "Right numbers: batches, losses and counts",
    3: "In step: who waits for whom, and what stays equal",
    4: "A model in parts",
}

# the number of an exercise, its part, and the exercises that it builds on
PATH = [
    ("01", 1, ""),
    ("02", 1, "01"),
    ("03", 1, "01"),
    ("05", 1, ""),
    ("04", 1, "05"),
    ("06", 1, "05"),
    ("08", 1, "05"),
    ("09", 1, "05"),
    ("10", 1, "05"),
    ("21", 1, "08 10"),
    ("07", 2, "05"),
    ("13", 2, "05"),
    ("14", 2, "08 13"),
    ("15", 2, "03"),
    ("31", 2, "07"),
    ("32", 2, "05 07"),
    ("30", 2, "14"),
    ("20", 2, "07 31"),
    ("11", 3, "09"),
    ("12", 3, "10"),
    ("34", 3, "06 12"),
    ("16", 3, "11"),
    ("17", 3, "11"),
    ("18", 3, "10"),
    ("33", 3, "18"),
    ("29", 3, "11 12"),
    ("28", 3, "21 29"),
    ("19", 4, "01"),
    ("23", 4, "12"),
    ("24", 4, "08 23"),
    ("25", 4, "05"),
    ("26", 4, "11"),
    ("27", 4, "25"),
    ("22", 4, "19 20"),
]
