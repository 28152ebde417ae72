"""What a process opens once for all objects that say the same: a predictor that comes anew with every task opens its model at the first one.

    opened = shared(make, path, options)        make(path, options), or what is there already
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
os.register_at_fork(after_in_child=_forget)  # the parent's are not its own
atexit.register(_forget)  # while all that frees it is still there


def shared(make, path, *args):
    """It lives on while somebody has it, or until another one is asked for. A file that was written anew is opened anew."""
    global _latest
    try:
        status = os.stat(path)
        version = status.st_ino, status.st_size, status.st_mtime_ns
    except OSError:
        version = None  # make says what is wrong
    key = pickle.dumps((make, version, path, args))
    with _opening:
        found = _opened.get(key)
        if found is None:
            found = make(path, *args)
        _opened[key] = _latest = found
    return found


class Lazy:
    """Pickles as what it was made with; `_mine(make, path, ...)` is opened at the first call in each process."""

    _session = None

    def __getstate__(self):
        return {**self.__dict__, "_session": None}

    def _mine(self, make, *args):
        if self._session is None or self._session[0] != os.getpid():
            self._session = os.getpid(), shared(make, self.path, *args)
        return self._session[1]
