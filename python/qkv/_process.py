"""What a process opens once for all equal objects: a predictor that is unpickled for every task opens its model only
for the first one.

    opened = shared(make, path, options)        make(path, options), or the one that is already open
"""
import atexit
import os
import pickle
import threading
import weakref


def _forget():
    global _opened, _latest, _opening
    _opened, _latest, _opening = weakref.WeakValueDictionary(), None, threading.Lock()


_forget()
os.register_at_fork(after_in_child=_forget)  # a child must not use its parent's
atexit.register(_forget)  # while everything needed to free them still exists


def shared(make, path, *args):
    """The object lives while it is in use, or until another one is requested.
    A file that was rewritten is opened again."""
    global _latest
    try:
        status = os.stat(path)
        version = status.st_ino, status.st_size, status.st_mtime_ns
    except OSError:
        version = None  # make reports the error
    key = pickle.dumps((make, version, path, args))
    with _opening:
        found = _opened.get(key)
        if found is None:
            found = make(path, *args)
        _opened[key] = _latest = found
    return found


class Lazy:
    """Pickles as its constructor's arguments; `_mine(make, path, ...)` is opened at the first call in each process."""

    _session = None

    def __getstate__(self):
        return {**self.__dict__, "_session": None}

    def _mine(self, make, *args):
        if self._session is None or self._session[0] != os.getpid():
            self._session = os.getpid(), shared(make, self.path, *args)
        return self._session[1]
