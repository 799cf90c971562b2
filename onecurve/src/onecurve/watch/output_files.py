"""Redirect a script's output files to the run's own folder.

None of the user's files is overwritten, renamed or deleted: a path has a twin below
`shadow`, which is written instead, and read if it exists. Files that other programs or
a library's C code write (except torch.save) are not redirected.
"""

import errno
import os
import shutil
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from onecurve.set_up.replace import replace
from onecurve.watch.events import OWN, STANDARD, place

READ = ["os:stat", "os:listdir", "os:scandir", "os:access", "torch:load"]
READ += ["os:chmod", "os:utime"]  # which leave contents unchanged
# shutil.copy2 calls these on Linux.
READ += [f"os:{name}" for name in ("listxattr", "getxattr") if hasattr(os, name)]
CHANGED = ["os:mkdir", "os:remove", "os:unlink", "os:rmdir", "shutil:rmtree"]
MOVED = ["os:rename", "os:replace"]
# Libraries keep their files in temporary folders and hidden folders at home.
TEMPORARY = f"{tempfile.gettempdir()}/", f"{Path.home()}/."
FROZEN = "<frozen "  # prefix of files of frozen modules, such as os


def by_library():
    """Return whether an installed package opens a file on its own."""
    frame = sys._getframe(1)
    while frame and "site-packages" not in frame.f_code.co_filename:
        if not frame.f_code.co_filename.startswith((OWN, STANDARD, FROZEN)):
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


class OutputFiles:
    """Redirects what this process writes; `log` gets an event for each file.

    If `shadow` is None, files are only logged.
    """

    def __init__(self, shadow, log):
        self.shadow = shadow
        self.log = log
        ours = ["/dev", "/proc", "/sys"]
        if shadow:
            ours += [shadow.parent, tempfile.gettempdir()]
        self.left_alone = tuple(f"{folder}/" for folder in ours)
        holds = [path for path in log.paths if TEMPORARY[0].startswith(path)]
        self.own = tuple(set(log.paths) - set(holds))  # not its parents

    def install(self):
        if self.shadow:
            for name in READ:
                replace(name, self.read)
            for name in CHANGED:
                replace(name, self.change)
            replace("os:chdir", self.go_into)
        for name in MOVED:
            replace(name, self.move)
        replace("builtins:open", self.open)
        replace("io:open", self.open)
        replace("os:open", self.os_open)
        replace("torch:save", self.save)

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
        if temporary and by_library():
            return None  # such as generated code
        return self.shadow / full.lstrip("/") if self.shadow else Path(full)

    def existing(self, path):
        """Return a path's twin if it exists, else the path."""
        twin = self.twin(path)
        return twin if twin and os.path.lexists(twin) else path

    def prepared(self, path, keep=False):
        """Return where to write a file; with `keep`, its content is copied there."""
        twin = self.twin(path)
        if twin is None or not self.shadow:
            return path
        twin.parent.mkdir(parents=True, exist_ok=True)
        if keep and not twin.exists() and os.path.isfile(path):
            copy(path, twin)
        return twin

    def written(self, path, keep=False):
        """Return what `prepared` returns, and log an event."""
        if self.twin(path):
            places = [place(frame) for frame in self.log.frames()]
            line, by = [*places, None, None][:2]
            self.log.write("file", path=os.fsdecode(path), line=line, by=by)
        return self.prepared(path, keep)

    def appends(self, file, path):
        """Log an event for a file as soon as something is written to it."""

        def write(text):
            del file.write
            self.written(path)
            return file.write(text)

        file.write = write  # writelines calls it, too
        return file

    def open(self, original, file, mode="r", *args, **options):
        if "a" in mode and self.twin(file):
            path = self.prepared(file, keep=True)
            return self.appends(original(path, mode, *args, **options), file)
        if set("wax+") & set(mode):
            file = self.written(file, keep="w" not in mode)
        else:
            file = self.existing(file)
        return original(file, mode, *args, **options)

    def os_open(self, original, path, flags, *args, **options):
        """Wrap os.open, which mostly creates locks, so log no event."""
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            path = self.prepared(path, keep=True)
        return original(path, flags, *args, **options)

    def save(self, original, obj, f, *args, **options):
        """Wrap torch.save, which opens its file in C++."""
        if isinstance(f, str | Path):
            f = self.written(f)
        return original(obj, f, *args, **options)

    def read(self, original, *args, **options):
        """Wrap a reading function; the path is the first argument, `path` or `f`."""
        name = next((one for one in ("path", "f") if one in options), None)
        if name:
            options[name] = self.existing(options[name])
        else:
            path, *args = args or ["."]
            args = [self.existing(path), *args]
        return original(*args, **options)

    def go_into(self, original, path):
        """Wrap os.chdir; redirect only to a folder that this run alone created."""
        made_here = self.twin(path) is not None and not os.path.lexists(path)
        return original(self.existing(path) if made_here else path)

    def change(self, original, path, *args, **options):
        """Wrap functions that create or remove a path; leave the user's unchanged."""
        twin = self.twin(path)
        if twin is None or options.get("dir_fd") is not None:  # rmtree's own calls
            return original(path, *args, **options)
        if original.__name__ == "mkdir":
            if os.path.isdir(path) or twin.is_dir():
                why = os.strerror(errno.EEXIST)
                raise FileExistsError(errno.EEXIST, why, os.fspath(path))
            twin.mkdir(parents=True, exist_ok=True)
        elif os.path.lexists(twin):
            return original(twin, *args, **options)
        return None

    def move(self, original, src, dst, *args, **options):
        return original(self.prepared(src, keep=True), self.written(dst))
