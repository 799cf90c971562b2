"""Redirect a script's output files to the run's own folder.

Files that other programs or a library's C code write, except those of torch.save and
safetensors, are not redirected.
"""

import errno
import os
import shutil
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from onecurve.set_up.cpu_for_cuda import move
from onecurve.set_up.replace import replace
from onecurve.watch.events import place
from onecurve.watch.twins import Twins

READ = ["os:stat", "os:lstat", "os:readlink", "os:access", "torch:load"]
READ += ["os:chmod", "os:utime"]  # which leave contents unchanged
# shutil.copy2 calls these on Linux.
READ += [f"os:{name}" for name in ("listxattr", "getxattr") if hasattr(os, name)]
CHANGED = ["os:mkdir", "os:remove", "os:unlink", "os:rmdir", "shutil:rmtree"]
MOVED = ["os:rename", "os:replace"]


class Entry(type(Path())):
    """A path like os.DirEntry, which may be redirected."""

    path = property(os.fspath)

    def is_dir(self, *, follow_symlinks=True):
        return (follow_symlinks or not self.is_symlink()) and super().is_dir()

    def is_file(self, *, follow_symlinks=True):
        return (follow_symlinks or not self.is_symlink()) and super().is_file()


class Entries(map):
    """Paths, as os.scandir returns them."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    close = __exit__


class OutputFiles(Twins):
    """Redirects what this process writes; `log` gets an event for each file.

    If `shadow` is None, files are only logged.
    """

    def install(self):
        if self.shadow:
            for name in READ:
                replace(name, self.read)
            for name in CHANGED:
                replace(name, self.change)
            replace("os:chdir", self.go_into)
            replace("os:listdir", self.names)
            replace("os:scandir", self.entries)
            replace("os:symlink", self.link)
        for name in MOVED:
            replace(name, self.move)
        replace("builtins:open", self.open)
        replace("io:open", self.open)
        replace("os:open", self.os_open)
        replace("torch:save", self.save)
        for name in "safetensors", "safetensors.torch", "safetensors.numpy":
            with suppress(ImportError):
                import_module(name)
                replace(f"{name}:serialize_file", self.save)
                replace(f"{name}:safe_open", self.read)
                replace(f"{name}:safe_open", move)  # to the CPU

    def written(self, path, keep=False):
        """Return what `prepared` returns, and log an event, except for a lock."""
        twin = self.twin(path)
        if twin and not str(twin).endswith("lock"):
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
        """Wrap torch.save and others that open a file in native code."""
        if isinstance(f, str | Path):
            f = self.written(f)
        return original(obj, f, *args, **options)

    def read(self, original, *args, **options):
        """Wrap a reading function; the path is the first argument, or has a name."""
        name = next((one for one in ("path", "f", "filename") if one in options), None)
        if name:
            options[name] = self.existing(options[name])
        else:
            path, *args = args or ["."]
            args = [self.existing(path), *args]
        return original(*args, **options)

    def names(self, original, path="."):
        """Wrap os.listdir: a folder's names, both the user's and the script's."""
        twin = self.twin(path)
        if twin is None or not self.is_users(path, twin):
            return original(path if twin is None else twin)
        own = original(twin) if self.is_there(twin) else []
        for one in original(path):
            if one not in own and self.is_users(path, twin / os.fsdecode(one)):
                own.append(one)
        return own

    def entries(self, original, path="."):
        """Wrap os.scandir, like `names`."""
        twin = self.twin(path)
        if twin is None or not (self.is_there(twin) or self.deleted):
            return original(path)
        return Entries(partial(Entry, path), os.listdir(path))

    def go_into(self, original, path):
        """Wrap os.chdir; redirect only to a folder that this run alone created."""
        made_here = self.twin(path) is not None and not self.is_there(path)
        return original(self.existing(path) if made_here else path)

    def change(self, original, path, *args, **options):
        """Wrap functions that create or remove a path; leave the user's unchanged."""
        twin = self.twin(path)
        if twin is None or options.get("dir_fd") is not None:  # rmtree's own calls
            return original(path, *args, **options)
        users = self.is_users(path, twin)
        if original.__name__ == "mkdir":
            if users or self.is_there(twin):
                why = os.strerror(errno.EEXIST)
                raise FileExistsError(errno.EEXIST, why, os.fspath(path))
            twin.parent.mkdir(parents=True, exist_ok=True)
            return original(twin, *args, **options)  # one rank alone succeeds
        if self.is_there(twin) or not users:
            original(twin, *args, **options)
        if users:
            self.deleted.add(twin)

    def move(self, original, src, dst, *args, **options):
        """Wrap os.rename and os.replace; a user's file or folder is copied first."""
        to = self.written(dst)
        twin = self.twin(src)
        if twin is None or not self.shadow:
            return original(src, to)
        if self.is_users(src, twin):
            twin = self.shadow.with_name(f"moved{os.getpid()}")
            is_folder = os.path.isdir(src)
            (shutil.copytree if is_folder else shutil.copyfile)(src, twin)
            (shutil.rmtree if is_folder else os.remove)(src)
        return original(twin, to)

    def link(self, original, src, dst, *args, **options):
        """Wrap os.symlink, whose relative paths begin at the link."""
        src = os.path.isabs(src) and self.twin(src) or src
        return original(src, self.prepared(dst), *args, **options)
