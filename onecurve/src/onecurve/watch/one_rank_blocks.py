"""Recognize training that one rank does alone, such as weights that all then load."""

import ast
import functools
import linecache
import re

# Conditions that hold on one rank only.
ONE = r"rank\w*(\(\))? == 0$|^not \S*rank\w*(\(\))?$|is_(main|master)\w*\S*$"


class OneRankBlocks:
    """Tells whether the script is where one rank trains alone."""

    def __init__(self, log):
        self.log = log
        self.blocks = set()  # (file, first line, last) that create optimizers

    def begins(self):
        """Return whether only one rank creates this optimizer, and remember where."""
        for block in self.around():
            self.blocks.add(block)
            return True
        return False

    def is_now(self):
        """Return whether the script is in a block that `begins` remembered."""
        around = self.around() if self.blocks else []
        return any(block in self.blocks for block in around)

    def around(self):
        """Yield the script's blocks for one rank, the innermost first."""
        for frame in self.log.frames():
            path = frame.f_code.co_filename
            for first, last in blocks_of_one(path):
                if first <= frame.f_lineno <= last:
                    yield path, first, last


@functools.cache
def blocks_of_one(path):
    """Return [(first line, last line)] of a file's blocks for one rank only."""
    found = []
    for node in ast.walk(ast.parse("".join(linecache.getlines(path)))):
        alone = isinstance(node, ast.If) and not node.orelse
        if alone and re.search(ONE, ast.unparse(node.test)):
            found.append((node.body[0].lineno, node.body[-1].end_lineno))
    return found
