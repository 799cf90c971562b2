"""What is read: `make docs`, `side_by_side`, `notebooks`, `handouts`.

reasons          what each stage teaches, the reason for every hunk
blocks           the generated parts of the pages
essence          the diff of the front page
handouts         the exercises of a workshop to print, and the instructor's answers
symptoms         the page of symptoms: every "What goes wrong", by what you see
switches         edits of the stages, and what lines they change
outcomes         what happens with lines left out or wrong, from runs of all of them
variants         parts that run scripts: stages, variants, make inspect
resumed          parts that run stages 11 and 12 again, from a checkpoint
public           in how many public scripts the inspector finds bugs
upstream         faults of PyTorch, as scripts, on the active version
hangs            runs that hang, for 04_ddp/HANGS.md
pictures         the pictures of the pages, in svg/; diagrams/ describes some of them
moving           what the README opens with: a curve that draws itself
side_by_side     each stage beside the one before it, in one HTML file; view/ has parts
columns          its lines, side by side, and the words that changed
notebook         what the notebooks import
stored           runs them, and stores what they show
drawing          what they draw
sketches         what only pages show; `sheet` is boxes and arrows, `cuts` of them

It imports every other room, and none of them imports it.
"""
