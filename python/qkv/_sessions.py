"""A pool of one model's sessions for several threads: each is lent to one thread at a time,
created if none is free, and reused.

    pool = Sessions(make, state)                make() returns a session, which has a method close()
    with pool.lend() as session: ...            any of them: for runs that leave no state
    with pool.only() as session: ...            always the same one: for runs that continue from its state
    with pool.own() as session: ...             this thread's own from now on
    with pool.closed(): ...                     all are closed, and none is lent meanwhile
"""
import contextlib
import threading

from ._lib import Error

WRITES_BUFFERS, DRAWS_RANDOM = 1, 2  # qkv_state


class Sessions:
    def __init__(self, make, state):
        self.make, self.state = make, state
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
        session = self.make()
        with self._turn:
            self._all.add(session)
        return session

    def _put(self, session):
        with self._turn:
            self._free.append(session)

    def warm(self):
        """Creates the first session, so that its errors are reported early."""
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
        """Closes the sessions of threads that have ended."""
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
        """keeps: the state that this run leaves belongs to this thread;
        its use by other threads is an error until one with `begin`."""
        me = threading.current_thread()
        with self._inside(), self._lock:
            if self._one is None:
                self._one = self._take()
            if begin:
                self._owner = None
            elif self._owner not in (None, me):
                what = "buffers that it writes" if self.state & WRITES_BUFFERS else "inputs that it keeps"
                raise Error(f"this model continues from the state of its last run ({what}), which belongs to thread "
                            f"'{self._owner.name}': use one "
                            "session per thread, model.session(), or call model.reset() before another thread starts",
                            2)
            elif keeps or self.state & WRITES_BUFFERS:
                self._owner = me
            yield self._one

    def hold(self):
        """A session to hold for any length of time; release returns it."""
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
                raise Error(f"{self._held} sessions of this model (model.session()) are open: close them before "
                            "changing it", 2)
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
