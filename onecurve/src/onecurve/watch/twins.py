"""Paths of a script's files, and their twins below the run's own folder.

None of the user's files is overwritten, renamed or deleted: a path has a twin below
`shadow`, which is written instead, and read if it exists.
"""

import os
import re
import shutil
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from onecurve.watch.events import OWN, STANDARD

# Libraries keep their files in temporary folders and hidden folders at home.
TEMPORARY = f"{tempfile.gettempdir()}/", f"{Path.home()}/."
# Their caches elsewhere, which native code may write, and all ranks.
CACHED = re.compile(r"(?i)cache[^/]*/|/\.(numba|triton|config)\w*/")
SETS = re.compile(r"CACHE|^(HF|TORCH)_HOME$")  # variables with folders of caches


def by_library():
    """Return whether an installed package opens a file on its own."""
    frame = sys._getframe(1)
    while frame and "site-packages" not in frame.f_code.co_filename:
        if not frame.f_code.co_filename.startswith((OWN, STANDARD, "<")):
            return False
        frame = frame.f_back
    return True


def copy(path, twin):
    """Copy a file unless a copy exists: another rank may have written to it."""
    own = twin.with_name(f"{twin.name}-{os.getpid()}")
    shutil.copyfile(path, own)
    with suppress(FileExistsError):
        os.link(own, twin)
    os.unlink(own)


class Twins:
    """The paths that a script may write. Without a `shadow`, none is redirected."""

    def __init__(self, shadow, log):
        self.shadow = shadow
        self.deleted = set()  # twins of the user's paths that this process deleted
        self.log = log
        self.lstat = os.lstat  # not redirected
        ours = ["/dev", "/proc", "/sys"]
        if shadow:
            ours += [shadow.parent, tempfile.gettempdir()]
        self.left_alone = tuple(f"{folder}/" for folder in ours)
        holds = [one for one in log.paths for each in TEMPORARY if each.startswith(one)]
        self.own = tuple(set(log.paths) - set(holds))  # not their parents
        caches = [os.environ[name] for name in os.environ if SETS.search(name)]
        self.caches = tuple(f"{one}/" for one in caches if one)

    def twin(self, path):
        """Return a path's twin, or None if the path is not redirected."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None  # a file descriptor or a file object
        path = os.fsdecode(path)
        main = threading.current_thread() is threading.main_thread()
        full = os.path.abspath(path)
        if full.startswith(self.left_alone) or (main and not self.log.frame()):
            return None  # the script's runner opens it
        temporary = full.startswith(TEMPORARY) and not full.startswith(self.own)
        home = max(filter(full.startswith, self.log.paths), key=len, default="")
        cached = full.startswith(self.caches) or CACHED.search(f"{full}/", len(home))
        if (temporary or cached) and by_library():
            return None  # such as generated code
        return self.shadow / full.lstrip("/") if self.shadow else Path(full)

    def is_there(self, path):
        """Return whether a path exists, without redirection."""
        with suppress(OSError):
            return bool(self.lstat(path))
        return False

    def is_users(self, path, twin):
        """Return whether the user has a path and the script didn't delete it."""
        return self.deleted.isdisjoint([twin, *twin.parents]) and self.is_there(path)

    def existing(self, path):
        """Return a path's twin if it exists or the user's is deleted, else the path."""
        twin = self.twin(path)
        if twin is None or not self.shadow:
            return path
        deleted = self.is_there(path) and not self.is_users(path, twin)
        return twin if deleted or self.is_there(twin) else path

    def prepared(self, path, keep=False):
        """Return where to write a file; with `keep`, its content is copied there."""
        twin = self.twin(path)
        if twin is None or not self.shadow:
            return path
        twin.parent.mkdir(parents=True, exist_ok=True)
        if keep and os.path.isfile(path) and not self.is_there(twin):
            copy(path, twin)
        return twin
