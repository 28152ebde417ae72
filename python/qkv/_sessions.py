"""The sessions of one model among threads: each is lent to one at a time, made where none is free, and kept for the next.

    pool = Sessions(make, state)                make() gives a session, which has a method close()
    with pool.lend() as session: ...            any of them: what runs leave behind does not matter
    with pool.only() as session: ...            always the same one, of which runs go on
    with pool.own() as session: ...             this thread's, that it has to itself from now on
    with pool.closed(): ...                     all are closed, and nobody gets one meanwhile
"""
import contextlib
import threading

from ._lib import Error

WRITES_BUFFERS, DRAWS_RANDOM = 1, 2  # qkv_state


class Sessions:
    def __init__(self, make, state):
        self._make, self.state = make, state
        self._all, self._free = set(), []
        self._turn, self._lent, self._held, self._closing = threading.Condition(), 0, 0, False
        self._forget()

    def _forget(self):
        self._own, self._one, self._lock, self._owner = {}, None, threading.Lock(), None

    def _enter(self):
        with self._turn:
            self._turn.wait_for(lambda: not self._closing)
            self._lent += 1

    def _leave(self):
        with self._turn:
            self._lent -= 1
            self._turn.notify_all()

    def _take(self):
        with self._turn:
            if self._free:
                return self._free.pop()
        session = self._make()
        with self._turn:
            self._all.add(session)
        return session

    def _put(self, session):
        with self._turn:
            self._free.append(session)

    def warm(self):
        """The first session, for what is wrong with it to be said early."""
        self._put(self._take())

    @contextlib.contextmanager
    def _inside(self):
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def lend(self):
        with self._inside():
            session = self._take()
            try:
                yield session
            finally:
                self._put(session)

    @contextlib.contextmanager
    def own(self):
        with self._inside():
            me = threading.current_thread()
            if me not in self._own:
                self._drop_dead()
                self._own[me] = self._take()
            yield self._own[me]

    def has_own(self):
        return threading.current_thread() in self._own

    def _drop_dead(self):
        """What threads kept that have ended."""
        for thread in [t for t in list(self._own) if not t.is_alive()]:
            session = self._own.pop(thread, None)
            if session:
                self._close(session)

    def _close(self, session):
        session.close()
        with self._turn:
            self._all.discard(session)

    @contextlib.contextmanager
    def only(self, keeps=False, begin=False):
        """keeps: what this run leaves to the next is this thread's; other threads' uses are errors until one with `begin`."""
        me = threading.current_thread()
        with self._inside(), self._lock:
            if self._one is None:
                self._one = self._take()
            if begin:
                self._owner = None
            elif self._owner not in (None, me):
                what = "buffers that it writes" if self.state & WRITES_BUFFERS else "inputs that it keeps"
                raise Error(f"this model goes on from what its last run left ({what}), which is of thread '{self._owner.name}': take a session "
                            "of its own for each thread, model.session(), or call model.reset() before another thread begins", 2)
            elif keeps or self.state & WRITES_BUFFERS:
                self._owner = me
            yield self._one

    def hold(self):
        """A session for as long as somebody wants it; release gives it back."""
        with self._inside():
            session = self._take()
            with self._turn:
                self._held += 1
            return session

    def release(self, session, again):
        """again: others may use it."""
        with self._turn:
            self._held -= 1
        if again:
            self._put(session)
        else:
            self._close(session)

    @contextlib.contextmanager
    def closed(self):
        with self._turn:
            self._turn.wait_for(lambda: not self._closing)
            if self._held:
                raise Error(f"sessions of this model (model.session()) are open, {self._held} in number: close them before it changes", 2)
            self._closing = True
            self._turn.wait_for(lambda: self._lent == 0)
        try:
            self.close()
            yield
        finally:
            with self._turn:
                self._closing = False
                self._turn.notify_all()

    def close(self):
        for session in self._all:
            session.close()
        self._all.clear()
        self._free.clear()
        self._forget()
