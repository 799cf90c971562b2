"""What a script writes goes to a folder of the run's own, and is read from there.

Nothing of the user's is overwritten, renamed or deleted. A path outside of the
temporary folders has a twin below `shadow`: what is written goes to the twin, and what
is read comes from it, where there is one.
"""

import os
import shutil
import tempfile
from pathlib import Path

from tools.watch.replace import replace

WRITES = set("wax+")
OURS = ("/dev/", "/proc/", "/sys/")


class Files:
    """Redirects what this process writes; `log` gets an event for each file."""

    def __init__(self, shadow, log, folders):
        """`folders` are the script's: redirected even where they are temporary."""
        self.shadow = shadow
        self.log = log
        self.folders = tuple(f"{folder}/" for folder in folders)
        self.left_alone = (*OURS, f"{Path(tempfile.gettempdir()).resolve()}/")

    def install(self):
        """Put the methods below in place."""
        for name in "builtins:open", "io:open":
            replace(name, self.open)
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
        if not isinstance(path, str | Path):
            return None  # a file descriptor, or a file
        full = os.path.abspath(path)
        if full.startswith(f"{self.shadow.parent}/"):
            return None
        if full.startswith(self.left_alone) and not full.startswith(self.folders):
            return None
        return self.shadow / full.lstrip("/")

    def existing(self, path):
        """Return a path's twin where there is one, else the path."""
        twin = self.twin(path)
        return twin if twin and os.path.lexists(twin) else path

    def prepared(self, path, keep=False):
        """Return where a file is to be written; with `keep`, what it has is there."""
        twin = self.twin(path)
        if twin is None:
            return path
        twin.parent.mkdir(parents=True, exist_ok=True)
        if keep and not twin.exists() and os.path.isfile(path):
            shutil.copyfile(path, twin)
        self.log.write("file", path=str(path), line=self.log.line(), appended=keep)
        return twin

    def open(self, original, file, mode="r", *args, **options):
        """Around open."""
        if WRITES & set(mode):
            file = self.prepared(file, keep="w" not in mode)
        else:
            file = self.existing(file)
        return original(file, mode, *args, **options)

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
