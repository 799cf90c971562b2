"""What one rank trains for itself, as weights that all then load: not looked at."""

import ast
import functools
import linecache
import re

# Conditions under which one rank goes on.
ONE = r"rank\w*(\(\))? == 0$|^not \S*rank\w*(\(\))?$|is_(main|master)\w*\S*$"


class Apart:
    """Tells where the script is while one rank trains something of its own."""

    def __init__(self, log):
        self.log = log
        self.blocks = set()  # (file, first line, last) where optimizers are made

    def begins(self):
        """Where an optimizer is made: return whether only one rank comes there."""
        for block in self.around():
            self.blocks.add(block)
            return True
        return False

    def is_now(self):
        """Return whether the script is below such a place."""
        around = self.around() if self.blocks else []
        return any(block in self.blocks for block in around)

    def around(self):
        """Yield the blocks of one rank in which the script is, the innermost first."""
        for frame in self.log.frames():
            path = frame.f_code.co_filename
            for first, last in blocks_of_one(path):
                if first <= frame.f_lineno <= last:
                    yield path, first, last


@functools.cache
def blocks_of_one(path):
    """Return [(first line, last)] of what a file leaves to one rank, and no other."""
    found = []
    for node in ast.walk(ast.parse("".join(linecache.getlines(path)))):
        alone = isinstance(node, ast.If) and not node.orelse
        if alone and re.search(ONE, ast.unparse(node.test)):
            found.append((node.body[0].lineno, node.body[-1].end_lineno))
    return found
