"""What is read: `make docs`, `side_by_side`, `notebooks`.

blocks           the generated parts of the pages, and the reasons for every hunk
essence          the diff of the front page
symptoms         the page of symptoms: every "What goes wrong", by what you see
own_script       the curves of the scripts in beyond/own_script/
variants         variants of a stage: their diffs, and their curves
hangs            the first ranks, and a run that hangs, for 04_ddp
inspected        what make inspect says of a script with mistakes
diagrams         the Mermaid diagrams as SVG, for the site
pictures         the pictures of the pages, in svg/
side_by_side     any two stages in the browser, one HTML file
words            the words that changed in a line, for side_by_side
notebook         what the notebooks import
drawing          what they draw
open_notebooks   `make notebooks`: JupyterLab, on copies of them

It imports every other room, and none of them imports it.
"""
