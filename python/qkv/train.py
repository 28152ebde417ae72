"""Trainer: a joint graph and an optimizer for its parameters."""
import ctypes as C
import dataclasses
import os

from ._lib import FIT_CALLBACK, CError, CFitEvent, CStep, CTensor, Error, FitOptions, SessionOptions, TrainOptions, check, choice, lib
from ._tensors import _array_of, _borrow
from .model import Model

__all__ = ["FitEvent", "Step", "Trainer"]


@dataclasses.dataclass(frozen=True)
class Step:
    """step counts from 1; loss is that of the parameters before the step; lr is the rate it used;
    grad_norm is before clipping."""

    step: int
    loss: float
    lr: float
    grad_norm: float


@dataclasses.dataclass(frozen=True)
class FitEvent:
    """After a step, or (epoch_end) after an epoch and its validation. Values that do not apply are NaN.
    replayed: read from the checkpoint."""

    epoch_end: bool
    replayed: bool
    epoch: int
    step: int
    steps: int
    loss: float
    lr: float
    grad_norm: float
    val_loss: float
    val_accuracy: float


def _path(p):
    return os.fsencode(p) if p is not None else None


def _columns(data):
    borrowed = [_borrow(x) for x in data.values()]
    n = max(len(borrowed), 1)
    return borrowed, (C.c_char_p * n)(*[name.encode() for name in data]), (CTensor * n)(*[b.c
        for b in borrowed]), len(borrowed)


class Trainer:
    """Trains the parameters of a joint graph (qkv.joint; a path or a Model) with an optimizer: "adamw", "adam" or
    "sgd", with PyTorch's names and defaults. schedule: "constant", "linear", "cosine" (both down to lr_end over
    `steps`, or over all steps of fit) or "step" (times gamma every step_size steps), after `warmup` steps in which
    the rate grows. clip_norm: as clip_grad_norm_. The model's own weights do not change; model() and weights() return
    the trained ones.

        trainer = qkv.Trainer("joint.pt2", optimizer="adamw", lr=1e-3)
        for x, y in batches:
            print(trainer.step({"x": x, "target": y}).loss)
        trainer.model().save("trained.pt2")
    """

    def __init__(self, model, optimizer="adamw", betas=None, threads=None, memory_limit=0, optimize=True,
                 portable_bits=False, **options):
        self._session = None
        self._model = model if isinstance(model, Model) else Model(model)
        e, self._options = CError(), TrainOptions(C.sizeof(TrainOptions))
        check(lib().qkv_train_defaults(C.byref(self._options), choice("optimizer", optimizer), C.byref(e)) == 0, e)
        known = {name for name, _ in TrainOptions._fields_} - {"struct_size", "optimizer", "beta1", "beta2"}
        for name, value in options.items():
            if name not in known:
                raise Error(f"unknown option '{name}'; there are {', '.join(sorted(known))}, betas", 2)
            setattr(self._options, name, choice(name, value) if name == "schedule" else value)
        if betas is not None:
            self._options.beta1, self._options.beta2 = betas
        session = SessionOptions(C.sizeof(SessionOptions), threads or 0, memory_limit, 0 if optimize else 1,
                                 C.addressof(self._options), portable_bits=portable_bits)
        self._model._users.add(self)
        self._session = lib().qkv_session_create(self._model._model, C.byref(session), C.byref(e))
        check(self._session, e)

    def __del__(self):
        if getattr(self, "_session", None):
            lib().qkv_session_free(self._session)

    def step(self, feeds):
        """One step with these inputs, {name: array}. A loss or gradient that is not finite raises Error (code 1),
        which names the node that produced the first such value; parameters have not changed then."""
        e, out, keep = CError(), CStep(C.sizeof(CStep)), []
        for name, x in feeds.items():
            keep.append(_borrow(x))
            check(lib().qkv_session_set_input(self._session, name.encode(), C.byref(keep[-1].c), C.byref(e)) == 0, e)
        check(lib().qkv_session_step(self._session, C.byref(out), C.byref(e)) == 0, e)
        return Step(out.step, out.loss, out.lr, out.grad_norm)

    def output(self, name):
        """An output of the last step, copied."""
        e, t = CError(), CTensor()
        check(lib().qkv_session_output_by_name(self._session, name.encode(), C.byref(t), C.byref(e)) == 0, e)
        return _array_of(t)

    def weights(self):
        """{name in the state dict: NumPy array} of parameters and persistent buffers as they are now, copied."""
        e, out, t = CError(), {}, CTensor()
        kind, persistent = C.c_int(), C.c_int()
        for i in range(lib().qkv_model_weight_count(self._model._model)):
            name = lib().qkv_model_weight(self._model._model, i, None, C.byref(kind), C.byref(persistent))
            if kind.value == 0 or persistent.value:
                check(lib().qkv_session_weight(self._session, name, C.byref(t), C.byref(e)) == 0, e)
                out[name.decode()] = _array_of(t)
        return out

    def set_weights(self, weights):
        """Sets the values of trained parameters or of buffers that the model writes, {name: array};
        the optimizer's state stays."""
        e = CError()
        for name, x in weights.items():
            borrowed = _borrow(x)
            check(lib().qkv_session_set_weight(self._session, name.encode(), C.byref(borrowed.c), C.byref(e)) == 0, e)

    def save(self, path):
        """Writes a checkpoint (.safetensors): weights, optimizer, generator."""
        e = CError()
        check(lib().qkv_session_save(self._session, _path(path), C.byref(e)) == 0, e)

    def load(self, path):
        """Continues from a checkpoint, with the same bits as a trainer that was never stopped."""
        e = CError()
        check(lib().qkv_session_load(self._session, _path(path), C.byref(e)) == 0, e)

    def model(self):
        """The model without gradients, with the weights as they are now, copied: a qkv.Model."""
        e = CError()
        made = lib().qkv_session_trained(self._session, C.byref(e))
        check(made, e)
        return Model._of(made)

    def fit(self, data, val=None, epochs=1, batch=0, drop_last=False, in_order=False, checkpoint=None,
            checkpoint_every=0, resume=None, logits=None, labels=None, tell=None):
        """Trains on {input name: array with one example per row}, as `qkv train` does. tell(FitEvent) is called after
        every step and epoch; a true result ends the run. Returns whether it did. An exception in tell also ends the
        run, and is raised."""
        e, stopped, raised = CError(), C.c_int(), []

        def told(_, event):
            try:
                return bool(tell(FitEvent(*(bool(getattr(event.contents, n)) if n in ("epoch_end", "replayed")
                                            else getattr(event.contents, n) for n, _ in CFitEvent._fields_[1:]))))
            except BaseException as x:  # cannot pass through C
                raised.append(x)
                return 1

        keep, names, tensors, n = _columns(data)
        keep_val, val_names, val_tensors, n_val = _columns(val or {})
        options = FitOptions(C.sizeof(FitOptions), names, tensors, n, val_names, val_tensors, n_val, epochs, batch,
                             drop_last, in_order, _path(checkpoint), checkpoint_every, _path(resume),
                             logits.encode() if logits else None, labels.encode() if labels else None,
                             FIT_CALLBACK(told) if tell else FIT_CALLBACK(), None)
        ok = lib().qkv_session_fit(self._session, C.byref(options), C.byref(stopped), C.byref(e)) == 0
        del keep, keep_val
        if raised:
            raise raised[0]
        check(ok, e)
        return bool(stopped.value)
