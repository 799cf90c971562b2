"""The track that a learner follows: some exercises in the order of a workshop.

exercises/tracks.csv has the tracks, each with its spare exercises last. The learner's
workshop keeps the name of the one chosen last, so that every later command follows it.
Where none was chosen, that is all exercises, in the order of the path.
"""

import csv

from tools.lab.exercise import along_the_path
from tools.run.stages import ROOT, refuse

TRACKS = ROOT / "exercises/tracks.csv"
ALL = "all"


def along_the_track(track):
    """Return the exercises of a track, in its order; refuses a name that has none."""
    path = along_the_path()
    if track == ALL:
        return path
    with open(TRACKS, newline="") as file:
        rows = list(csv.DictReader(file))
    names = [row["exercise"] for row in rows if row["track"] == track]
    if not names:
        known = ", ".join(dict.fromkeys(row["track"] for row in rows))
        refuse(f"there is no track {track!r}: TRACK is one of {known}, {ALL}")
    by_name = {exercise.name: exercise for exercise in path}
    return [by_name[name] for name in names]


def chosen_track(folder):
    """Return the name of the track that was chosen in a learner's workshop."""
    path = folder / ".track"
    return path.read_text().strip() if path.exists() else ALL


def choose_track(track, folder):
    """Keep the name of a track in a learner's workshop; refuses one that is unknown."""
    along_the_track(track)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".track").write_text(track + "\n")
