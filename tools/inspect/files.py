"""What a script writes goes to a folder of the run's own, and is read from there.

Nothing of the user's is overwritten, renamed or deleted. A path outside of the run's
own folders has a twin below `shadow`: what is written goes to the twin, and what is
read comes from it, where there is one. What another program writes, or a library by
code that is not Python's (torch.save apart), is not seen here.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.run import ranks
from tools.watch.replace import replace

WRITES = set("wax+")
OURS = ("/dev/", "/proc/", "/sys/")


class Files:
    """Redirects what this process writes; `log` gets an event for each file."""

    def __init__(self, shadow, log):
        self.shadow = shadow
        self.log = log
        self.left_alone = (*OURS, f"{shadow.parent}/", f"{tempfile.gettempdir()}/")

    def install(self):
        """Put the methods below in place."""
        for name in "builtins:open", "io:open":
            replace(name, self.open)
        replace("os:open", self.os_open)
        for name in "mkdir", "remove", "unlink", "rmdir":
            replace(f"os:{name}", self.change)
        for name in "rename", "replace":
            replace(f"os:{name}", self.move)
        for name in "stat", "listdir", "scandir":
            replace(f"os:{name}", self.look)
        replace("shutil:rmtree", self.change)
        replace("torch:save", self.save)
        replace("torch:load", self.load)

    def twin(self, path):
        """Return the path of a path's twin, or None where the path is left alone."""
        if not isinstance(path, str | os.PathLike):
            return None  # a file descriptor, or a file
        full = os.path.abspath(path)
        if full.startswith(self.left_alone) or self.is_ours():
            return None
        return self.shadow / full.lstrip("/")

    def is_ours(self):
        """Return whether it is not the script that asks, but what runs it."""
        frame = sys._getframe(1)
        while frame and not self.log.is_script(frame):
            if frame.f_code.co_filename == ranks.__file__:
                return True
            frame = frame.f_back
        return False

    def existing(self, path):
        """Return a path's twin where there is one, else the path."""
        twin = self.twin(path)
        return twin if twin and os.path.lexists(twin) else path

    def prepared(self, path, keep=False, quiet=False):
        """Return where a file is to be written; with `keep`, what it has is there.

        There is an event for it, unless it is `quiet`.
        """
        twin = self.twin(path)
        if twin is None:
            return path
        twin.parent.mkdir(parents=True, exist_ok=True)
        if keep and not twin.exists() and os.path.isfile(path):
            shutil.copyfile(path, twin)
        if not quiet:
            line = self.log.line()
            self.log.write("file", path=str(path), line=line, appended=keep)
        return twin

    def open(self, original, file, mode="r", *args, **options):
        """Around open."""
        if WRITES & set(mode):
            file = self.prepared(file, keep="w" not in mode)
        else:
            file = self.existing(file)
        return original(file, mode, *args, **options)

    def os_open(self, original, path, flags, *args, **options):
        """Around os.open."""
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            path = self.prepared(path, keep=True, quiet=True)  # locks, mostly
        return original(path, flags, *args, **options)

    def change(self, original, path, *args, **options):
        """Around what makes or removes a file or a folder."""
        twin = self.twin(path)
        if twin is None:
            return original(path, *args, **options)
        if original.__name__ == "mkdir":
            if os.path.isdir(path) or twin.is_dir():
                raise FileExistsError(f"{path} exists")
            twin.mkdir(parents=True, exist_ok=True)
        elif os.path.lexists(twin):
            return original(twin, *args, **options)
        return None  # the user's stays as it is

    def move(self, original, old, new, *args, **options):
        """Around a renaming."""
        source = self.prepared(old, keep=True)
        return original(source, self.prepared(new), *args, **options)

    def look(self, original, path=".", *args, **options):
        """Around what only looks."""
        return original(self.existing(path), *args, **options)

    def save(self, original, obj, f, *args, **options):
        """Around torch.save, which opens its file in C++."""
        if isinstance(f, str | Path):
            f = self.prepared(f)
        return original(obj, f, *args, **options)

    def load(self, original, f, *args, **options):
        """Around torch.load."""
        return original(self.existing(f), *args, **options)
