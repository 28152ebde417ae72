"""Segmenter: every instance of a text in images, using qkv_segmenter_*;
the model is a grounding model as qkv.recipes.sam3 exports it.

    find = qkv.Segmenter("sam3.pt2", ["red car", "person"])
    found = find(image)                     (height, width, 3) uint8, or the path of a PNG or JPEG
    for one in found:
        print(one.text, one.score, one.box, one.mask.sum())
    overlay = found.overlay(image)          the image with masks, boxes, scores and a legend
"""
import ctypes as C
import os
import threading
import warnings

import numpy as np

from ._lib import OUTPUT_MEMORY, CError, Error, SegmentOptions, check, lib, vision
from ._process import Lazy
from .model import Model


class Instance:
    """One object that matches a text.

    text, prompt   the text, and its index
    score          0 to 1
    box            (x0, y0, x1, y1) in pixels of the image, not clipped
    area           pixels of the mask
    size, counts   (height, width), and the mask as COCO's compressed run lengths, as in pycocotools
    mask           (height, width) of bool, computed on access
    """

    __slots__ = "text", "prompt", "score", "box", "area", "size", "counts"

    def __init__(self, text, prompt, score, box, area, size, counts):
        self.text, self.prompt, self.score, self.box, self.area, self.size, self.counts = (text, prompt, score, box,
            area, size, counts)

    def __reduce__(self):
        return Instance, tuple(getattr(self, name) for name in self.__slots__)

    @property
    def mask(self):
        runs, shift, value = [], 0, 0
        # COCO's maskApi.c, rleFrString: 5 bits per byte; from the third on, the difference to the one two before
        for c in self.counts.encode():
            value |= (c - 48 & 31) << shift
            shift += 5
            if c - 48 & 32:
                continue
            if c - 48 & 16:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            shift = value = 0
        height, width = self.size
        return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T

    def __repr__(self):
        return f"Instance({self.text!r}, score={self.score:.3f}, box=({', '.join(f'{x:.1f}' for x in self.box)}))"


class Instances(list):
    """The instances of one image, ordered by text, then by score. size is the image's (height, width)."""

    def __init__(self, items, texts, size, found=None):
        super().__init__(items)
        self.texts, self.size, self._found = texts, size, found

    def __reduce__(self):  # the C object stays in its process
        return Instances, (list(self), self.texts, self.size)

    def overlay(self, image):
        """(height + legend, width, 3) uint8."""
        if self._found is None:
            raise Error("these instances come from another process; only where they were found can they be drawn", 2)
        picture, e = _Picture(image, "image"), CError()
        texts = (C.c_char_p * len(self.texts))(*[t.encode() for t in self.texts])
        drawn = vision().qkv_instances_overlay(self._found.pointer, picture.pointer, texts, len(texts), C.byref(e))
        check(drawn, e)
        over = _Picture.of(drawn)
        return over.pixels().copy()


class _Found:
    """A qkv_instances, owned."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __del__(self):
        vision().qkv_instances_free(self.pointer)


class _Picture:
    """A qkv_picture, owned."""

    def __init__(self, image, what):
        self.pointer, e = None, CError()
        if isinstance(image, (str, os.PathLike)):
            self.pointer = vision().qkv_picture_read(os.fsencode(image), C.byref(e))
        else:
            a = np.asarray(image)
            if a.dtype != np.uint8 or a.ndim not in (2, 3) or (a.ndim == 3 and a.shape[2] not in (1, 3, 4)):
                raise Error(f"{what} is {a.dtype} of shape {tuple(a.shape)}; expected uint8 (height, width, 3), or "
                            "with 1 or 4 channels, or (height, width)", 2)
            a = np.ascontiguousarray(a[..., :3] if a.ndim == 3 else a[..., None])  # drop alpha
            self.pointer = vision().qkv_picture_create(a.ctypes.data, *a.shape, C.byref(e))
        check(self.pointer, e)

    @classmethod
    def of(cls, pointer):
        p = cls.__new__(cls)
        p.pointer = pointer
        return p

    @property
    def size(self):
        return vision().qkv_picture_height(self.pointer), vision().qkv_picture_width(self.pointer)

    def pixels(self):
        """A view, valid as long as this object."""
        height, width = self.size
        return np.frombuffer((C.c_uint8 * (3 * height * width)).from_address(vision().qkv_picture_rgb(self.pointer)),
                             np.uint8).reshape(height, width, 3)

    def __del__(self):
        if self.pointer:
            vision().qkv_picture_free(self.pointer)


class _Opened:
    """A model, its session and its segmenter, used by one thread at a time."""

    def __init__(self, path, options, threshold, tile, overlap, batch, tokenizer, processor):
        self.lock, self.segmenter, self.texts, e = threading.Lock(), None, None, CError()
        self._free = vision().qkv_segmenter_free
        self.model = Model(path, **options)
        self.session = self.model.session()
        pointer = self.session._opened.pointer
        lib().qkv_session_output_memory(pointer, OUTPUT_MEMORY(), None)  # outputs are read in C
        given = SegmentOptions(C.sizeof(SegmentOptions), os.fsencode(tokenizer) if tokenizer else None,
                               os.fsencode(processor) if processor else None, threshold or 0, tile,
                               tile // 5 if overlap is None else overlap, batch=batch)
        self.model._users.add(self)
        self.segmenter = vision().qkv_segmenter_create(self.model._model, pointer, C.byref(given), C.byref(e))
        check(self.segmenter, e)
        self.threshold = vision().qkv_segmenter_threshold(self.segmenter)

    def look_for(self, texts):
        if texts == self.texts:
            return
        self.texts, e, n = None, CError(), len(texts)
        tokens = (C.c_int * max(n, 1))()
        check(vision().qkv_segmenter_prompts(self.segmenter, (C.c_char_p * max(n, 1))(*[t.encode() for t in texts]),
                                             n, tokens, C.byref(e)) == 0, e)
        self.texts, context = texts, vision().qkv_segmenter_context(self.segmenter)
        for text, need in zip(texts, tokens):
            if need > context:
                warnings.warn(f"'{text:.40}' is {need} tokens long; the model reads {context}, the rest is cut off",
                              stacklevel=4)

    def run(self, pictures, texts):
        e, n = CError(), len(pictures)
        found = (C.c_void_p * n)()
        given = (C.c_void_p * n)(*[p.pointer for p in pictures])
        check(vision().qkv_segmenter_run_many(self.segmenter, given, n, found, C.byref(e)) == 0, e)
        results = []
        for p, f in zip(pictures, [_Found(pointer) for pointer in found]):
            items = [vision().qkv_instances_at(f.pointer, k).contents
                     for k in range(vision().qkv_instances_count(f.pointer))]
            results.append(Instances([Instance(texts[i.prompt], i.prompt, i.score, tuple(i.box), i.area, p.size,
                                               i.counts.decode()) for i in items], texts, p.size, f))
        return results

    def __del__(self):
        if getattr(self, "segmenter", None):
            self._free(self.segmenter)


class Segmenter(Lazy):
    """Finds every instance of each text in images, as `qkv segment` does.
    It pickles as a path and options, like BatchPredictor.

    texts              what to look for; a call may pass others. They are encoded once for all images that follow.
    threshold          keep scores above this; None: the processor's
    tile, overlap      images with a side above `tile` pixels are cut into tiles that overlap (by a fifth if not given);
                       instances that span several tiles are joined
    batch              images or tiles per run; 0: as memory allows, up to 16
    tokenizer, processor   files to use instead of those in the model (docs/SAM3.md)
    compute, threads and further options are qkv.Model's.
    """

    def __init__(self, path, texts=(), *, threshold=None, tile=0, overlap=None, batch=0, tokenizer=None,
                 processor=None, **options):
        self.path = os.path.abspath(path)
        self.texts = _texts(texts)
        self._args = options, threshold, tile, overlap, batch, *(os.path.abspath(p) if p else None
                                                                 for p in (tokenizer, processor))

    @property
    def threshold(self):
        return self._mine(_Opened, *self._args).threshold

    def __call__(self, images, texts=None):
        """The Instances of one image, (height, width, 3) of uint8 or a path.
        For a list of images, or (N, height, width, 3), a list."""
        texts = self.texts if texts is None else _texts(texts)
        many = isinstance(images, (list, tuple)) or getattr(images, "ndim", 0) == 4 or getattr(images, "dtype",
            None) == object
        pictures = [_Picture(image, f"image {i}" if many else "the image")
                    for i, image in enumerate(images if many else [images])]
        o = self._mine(_Opened, *self._args)
        with o.lock:
            o.look_for(texts)
            results = o.run(pictures, texts) if pictures else []
        return results if many else results[0]

    def __repr__(self):
        return f"Segmenter({self.path!r}, {list(self.texts)})"


def _texts(texts):
    return (texts,) if isinstance(texts, str) else tuple(texts)
