"""The C library through ctypes: finding it, the structs of include/*.h, errors as exceptions."""
import ctypes as C
import os

HERE = os.path.dirname(os.path.abspath(__file__))

# qkv_dtype: position is the code
DTYPES = ("none f32 f64 f16 bf16 i64 i32 i16 i8 u8 bool u16 u32 u64 c32 c64 c128 "
          "f8e4m3fn f8e5m2 f8e4m3fnuz f8e5m2fnuz f8e8m0fnu i4 u4 i2 u2 f4e2m1").split()
STATUS = {1: "mismatch", 2: "usage", 3: "unreadable", 4: "unsupported", 5: "limit"}


class Error(RuntimeError):
    """An error of the library; `code` is its status (and the command's exit code)."""

    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code
        self.kind = STATUS.get(code, "error")


class CError(C.Structure):
    _fields_ = [("code", C.c_int), ("message", C.c_char * 1024)]


class CTensor(C.Structure):
    _fields_ = [("dtype", C.c_int), ("rank", C.c_int), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("data", C.c_void_p)]


class LoadOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("compute", C.c_int), ("no_fuse", C.c_int),
                ("fixed_names", C.POINTER(C.c_char_p)),
                ("fixed", C.POINTER(CTensor)), ("n_fixed", C.c_int), ("skip_padding", C.c_int), ("no_mmap", C.c_int),
                ("cache", C.c_char_p)]


class SessionOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("threads", C.c_int), ("memory_limit", C.c_size_t),
                ("no_optimize", C.c_int), ("train", C.c_void_p), ("passes", C.c_char_p),
                ("executor", C.c_void_p), ("portable_bits", C.c_int)]


class TrainOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("optimizer", C.c_int),
                *((name, C.c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum",
                                                  "dampening")),
                ("nesterov", C.c_int), ("clip_norm", C.c_double), ("schedule", C.c_int),
                ("warmup", C.c_int64), ("steps", C.c_int64), ("step_size", C.c_int64),
                ("gamma", C.c_double), ("lr_end", C.c_double), ("seed", C.c_uint64)]


class CStep(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("step", C.c_int64), ("loss", C.c_double), ("lr", C.c_double),
                ("grad_norm", C.c_double)]


class CFitEvent(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("epoch_end", C.c_int), ("replayed", C.c_int), ("epoch", C.c_int64),
                ("step", C.c_int64), ("steps", C.c_int64), ("loss", C.c_double),
                ("lr", C.c_double), ("grad_norm", C.c_double), ("val_loss", C.c_double), ("val_accuracy", C.c_double)]


FIT_CALLBACK = C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(CFitEvent))


class FitOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("names", C.POINTER(C.c_char_p)), ("tensors", C.POINTER(CTensor)),
                ("n", C.c_int), ("val_names", C.POINTER(C.c_char_p)), ("val_tensors", C.POINTER(CTensor)),
                ("n_val", C.c_int), ("epochs", C.c_int64), ("batch", C.c_int64), ("drop_last", C.c_int),
                ("in_order", C.c_int), ("checkpoint", C.c_char_p), ("checkpoint_every", C.c_int64),
                ("resume", C.c_char_p), ("logits", C.c_char_p), ("labels", C.c_char_p), ("tell", FIT_CALLBACK),
                ("user", C.c_void_p)]


PROGRESS = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_int)


class RewriteOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("rule_files", C.POINTER(C.c_char_p)), ("rule_file_count", C.c_int),
                ("no_builtin_rules", C.c_int), ("phases", C.c_uint), ("prove", C.c_int), ("seeds", C.c_int),
                ("counterexample", C.c_char_p), ("exact_masked_rows", C.c_int),
                ("progress", PROGRESS), ("progress_user", C.c_void_p), ("skip_padding", C.c_int),
                ("lift_sdpa", C.c_char_p), ("cudnn", C.c_int), ("unrounded", C.c_int),
                ("rule_texts", C.POINTER(C.c_char_p)), ("rule_text_count", C.c_int), ("n_functions", C.c_int),
                ("functions", C.c_void_p)]


SESSION_PROGRESS = C.CFUNCTYPE(None, C.c_void_p, C.c_char_p, C.c_double)


class CStats(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("plan_ms", C.c_double),
                *((name, C.c_size_t) for name in ("activation_bytes", "constant_bytes", "packed_bytes",
                                                  "scratch_bytes")),
                *((name, C.c_int) for name in ("steps", "plans", "threads")), ("kept_bytes", C.c_size_t)]


class CDifference(C.Structure):
    _fields_ = [*((name, C.c_double) for name in ("max_abs", "max_rel", "max_abs_over_peak", "cosine")),
                ("index", C.c_int64), ("a", C.c_double), ("b", C.c_double), ("nonfinite_mismatch", C.c_int64),
                ("failed", C.c_int64)]


OUTPUT_MEMORY = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_int, C.POINTER(CTensor))


class OnnxOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("opset", C.c_int), ("profile", C.c_int), ("external_data", C.c_int)]


class GraphOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("format", C.c_int), ("passes", C.c_char_p), ("as_run", C.c_int),
                ("module", C.c_char_p), ("op", C.c_char_p), ("around", C.c_char_p), ("hops", C.c_int)]


class GeneralizeOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("dims", C.POINTER(C.c_char_p)), ("n_dims", C.c_int),
                ("dynamic", C.POINTER(C.c_char_p)), ("n_dynamic", C.c_int), ("apart", C.c_int),
                ("check", C.POINTER(C.c_void_p)), ("n_check", C.c_int)]


class JointOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("loss", C.c_char_p), ("decompose", C.c_int),
                ("inputs", C.POINTER(C.c_char_p)), ("n_inputs", C.c_int),
                ("inputs_only", C.c_int), ("recompute", C.c_int), ("dim_names", C.POINTER(C.c_char_p)),
                ("dims", C.POINTER(C.c_int64)), ("n_dims", C.c_int), ("device", C.c_char_p), ("cudnn", C.c_int)]


Progress = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_longlong, C.c_longlong)
Metric = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.POINTER(C.c_double))


class QuantizeOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("target", C.c_char_p), ("calibration", C.c_int),
                ("percentile", C.c_double), ("asymmetric", C.c_int), ("dynamic", C.c_int),
                ("names", C.POINTER(C.c_char_p)), ("data", C.POINTER(CTensor)), ("n_data", C.c_int),
                ("batch", C.c_int64), ("skip", C.POINTER(C.c_char_p)), ("n_skip", C.c_int), ("threads", C.c_int),
                ("seed", C.c_uint64), ("progress", Progress), ("progress_user", C.c_void_p), ("smooth", C.c_double),
                ("correct", C.c_int), ("budget", C.c_char_p), ("weight_bits", C.c_int), ("group", C.c_int),
                ("weight_method", C.c_char_p), ("trainable", C.c_int), ("metric", Metric), ("metric_user", C.c_void_p),
                ("massive", C.c_double), ("metric_calls", C.c_int), ("calibration_cache", C.c_char_p)]


class CheckOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("targets", C.c_uint), ("security", C.c_int), ("full", C.c_int),
                ("strict", C.c_int)]


class SegmentOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("tokenizer", C.c_char_p), ("processor", C.c_char_p),
                ("threshold", C.c_double), ("tile", C.c_int), ("overlap", C.c_int), ("progress", PROGRESS),
                ("progress_user", C.c_void_p), ("batch", C.c_int)]


class SampleOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("temperature", C.c_double), ("top_k", C.c_int64), ("top_p", C.c_double)]


class CInstance(C.Structure):
    _fields_ = [("prompt", C.c_int), ("score", C.c_double), ("box", C.c_double * 4), ("area", C.c_int64),
                ("counts", C.c_char_p)]


class SdpaCall(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("query", CTensor), ("key", CTensor), ("value", CTensor),
                ("mask", C.POINTER(CTensor)), ("mask_requires_grad", C.c_int),
                ("requires_grad", C.c_int), ("is_causal", C.c_int), ("enable_gqa", C.c_int),
                ("dropout_p", C.c_double), ("offset", C.c_int64 * 3)]


class BackendsOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("device", C.c_char_p), ("cudnn", C.c_int), ("train", C.c_int),
                ("dim_names", C.POINTER(C.c_char_p)), ("dims", C.POINTER(C.c_int64)),
                ("n_dims", C.c_int)]


class ProveOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("dim_names", C.POINTER(C.c_char_p)), ("dims", C.POINTER(C.c_int64)),
                ("n_dims", C.c_int), ("sizes", C.c_int), ("seeds", C.c_int), ("floats", C.c_int),
                ("counterexample", C.c_char_p)]


CHOICES = ("onnx_profile", "graph_format", "optimizer", "schedule", "decompose", "recompute", "calibration",
           "phase", "target")
SUMS = ("phase", "target")  # whose values are bits


def library_path() -> str:
    """QKV_LIBRARY, the library inside the wheel, that of a checkout's build/,
    or the one that the system's loader finds."""
    root = os.path.dirname(os.path.dirname(HERE))
    for path in (os.environ.get("QKV_LIBRARY"), os.path.join(HERE, "libqkv.so"),
                 os.path.join(root, "build", "libqkv.so")):
        if path and os.path.exists(path):
            return path
    return "libqkv.so.0"


def vision_path(path):
    """libqkv_vision beside libqkv: of the same folder, with the same ending."""
    folder, name = os.path.split(path)
    return os.path.join(folder, name.replace("libqkv.so", "libqkv_vision.so", 1) if name.startswith("libqkv.so")
                        else "libqkv_vision.so")


def _declare(lib, functions):
    for name, result, *args in functions:
        f = getattr(lib, "qkv_" + name, None)
        if f is None:
            lib.qkv_version.restype = C.c_char_p
            raise Error(f"'{lib._name}' is qkv {lib.qkv_version().decode()}, older than this package: "
                        f"it has no qkv_{name}; install the library of the package's release, or unset QKV_LIBRARY", 3)
        f.restype, f.argtypes = result, args
    return lib


def _functions():
    p, i, s, e = C.c_void_p, C.c_int, C.c_char_p, C.POINTER(CError)
    i64, tensor = C.POINTER(C.c_int64), C.POINTER(CTensor)
    return (
            ("version", s), ("cpu", s), ("free", None, p),
            *((f"{c}_name", s, i) for c in CHOICES), *((f"{c}_from_name", i, s, C.POINTER(i)) for c in CHOICES),
            ("model_load", p, s, C.POINTER(LoadOptions), e),
            ("model_load_memory", p, p, C.c_size_t, C.POINTER(LoadOptions), e), ("model_free", None, p),
            ("model_input_count", i, p), ("model_input_name", s, p, i), ("model_input_dtype", i, p, i),
            ("model_input_rank", i, p, i),
            ("model_input_dim", s, p, i, i), ("model_output_count", i, p), ("model_output_name", s, p, i),
            ("model_output_label", s, p, i), ("model_output_tolerances", i, p, C.POINTER(C.c_double), e),
            ("model_cached", i, p, C.POINTER(s)),
            ("model_state", C.c_uint, p), ("model_symbol_count", i, p), ("model_symbol", s, p, i, i64, i64),
            ("model_with_dtype", p, p, i, C.POINTER(p), e), ("model_graph_view", p, p, C.POINTER(GraphOptions), e),
            ("model_save_graph", i, p, s, C.POINTER(GraphOptions), e),
            ("model_with_size_names", p, p, C.POINTER(s), C.POINTER(s), i, e), ("model_node_module", s, p, s),
            ("model_describe", p, p, e), ("model_graph_text", p, p, e), ("model_graph_text_after", p, p, s, e),
            ("model_graph_json", p, p, s, e), ("session_memory_json", p, p, e),
            ("op_known", i, s), ("register_op", i, p, e),
            ("pass_name", s, i, p), ("model_save", i, p, s, e), ("model_pack", i, p, s, p, e),
            ("model_save_certified", i, p, p, s, s, C.POINTER(p), e),
            ("certificate_check", i, p, p, s, C.POINTER(p), e),
            ("model_save_onnx", i, p, s, C.POINTER(OnnxOptions), C.POINTER(p), e),
            ("model_rewrite", p, p, C.POINTER(RewriteOptions), C.POINTER(p), e),
            ("match_look", i, p, s, p, e), ("match_build", i, p, s, e),
            ("model_extract", p, p, C.POINTER(s), i, C.POINTER(s), i, e),
            ("model_joint", p, p, C.POINTER(JointOptions), C.POINTER(p), e),
            ("model_quantize", p, p, C.POINTER(QuantizeOptions), C.POINTER(p), e),
            ("model_generalize", p, C.POINTER(p), i, C.POINTER(GeneralizeOptions), C.POINTER(p), e),
            ("model_prove", i, p, p, C.POINTER(ProveOptions), C.POINTER(p), e),
            ("model_backends", p, p, C.POINTER(BackendsOptions), e),
            ("sdpa_choice", i, C.POINTER(SdpaCall), s, i, C.POINTER(i), C.POINTER(p), e),
            ("check", i, s, C.POINTER(CheckOptions), C.POINTER(p), e), ("check_explain", s, s), ("check_id", s, i),
            ("session_create", p, p, C.POINTER(SessionOptions), e), ("session_free", None, p),
            ("session_set_input", i, p, s, tensor, e), ("session_keep", i, p, s, e), ("session_run", i, p, e),
            ("session_feed", i, p, s, s, e), ("session_output", i, p, i, tensor, e),
            ("session_output_by_name", i, p, s, tensor, e),
            ("session_output_memory", None, p, OUTPUT_MEMORY, p),
            ("session_input", i, p, i, tensor, e), ("session_seed", None, p, C.c_uint64),
            ("session_stats", i, p, C.POINTER(CStats), e), ("session_profile", None, p, i),
            ("session_profile_json", p, p, e), ("session_trace", i, p, C.c_int64, e),
            ("session_trace_write", i, p, s, e), ("session_on_progress", None, p, SESSION_PROGRESS, p),
            ("session_random_inputs", i, p, C.POINTER(s), i64, i, C.c_uint64, e),
            ("compare", i, tensor, tensor, C.c_double, C.c_double, C.POINTER(CDifference), e),
            ("tolerance", C.c_double, i), ("session_reset", None, p), ("session_cancel", None, p, i),
            ("session_clear_inputs", None, p),
            ("train_defaults", i, C.POINTER(TrainOptions), i, e), ("session_step", i, p, C.POINTER(CStep), e),
            ("session_weight", i, p, s, tensor, e), ("session_set_weight", i, p, s, tensor, e),
            ("session_save", i, p, s, e), ("session_load", i, p, s, e), ("session_trained", p, p, e),
            ("session_fit", i, p, C.POINTER(FitOptions), C.POINTER(i), e), ("model_weight_count", i, p),
            ("model_weight", s, p, i, tensor, C.POINTER(i), C.POINTER(i)),
            ("model_with_weights", p, p, C.POINTER(s), tensor, i, e))


def _vision_functions():
    p, i, s, e = C.c_void_p, C.c_int, C.c_char_p, C.POINTER(CError)
    return (
            ("picture_read", p, s, e), ("picture_create", p, p, i, i, i, e), ("picture_free", None, p),
            ("picture_width", i, p), ("picture_height", i, p),
            ("picture_rgb", p, p),
            ("tokenizer_json", p, s, e), ("tokenizer_free", None, p),
            ("tokenizer_encode", i, p, s, C.POINTER(C.c_int64), i, e),
            ("tokenizer_size", C.c_int64, p),
            ("tokenizer_bytes", C.POINTER(C.c_char), p, C.c_int64, C.POINTER(C.c_size_t)),
            ("tokenizer_is_special", i, p, C.c_int64), ("tokenizer_find", C.c_int64, p, s),
            ("sample", C.c_int64, C.POINTER(C.c_float), C.c_int64, C.POINTER(SampleOptions), C.POINTER(C.c_uint64), e),
            ("segmenter_create", p, p, p, C.POINTER(SegmentOptions), e), ("segmenter_free", None, p),
            ("segmenter_threshold", C.c_double, p),
            ("segmenter_context", i, p), ("segmenter_prompts", i, p, C.POINTER(s), i, C.POINTER(i), e),
            ("segmenter_run_many", i, p, C.POINTER(p), i, C.POINTER(p), e),
            ("instances_free", None, p), ("instances_count", i, p), ("instances_at", C.POINTER(CInstance), p, i),
            ("instances_overlay", p, p, p, C.POINTER(s), i, e))


_loaded = _vision = None


def lib():
    global _loaded
    if _loaded is None:
        path = library_path()
        try:
            _loaded = _declare(C.CDLL(path), _functions())
        except OSError as e:
            raise Error(f"cannot load the C library '{path}': {e}; build it with `make`, or set QKV_LIBRARY",
                        3) from None
    return _loaded


def vision():
    """libqkv_vision, which holds pictures, tokenizers, samplers and the segmenter; loaded when it is first needed.
    In a wheel libqkv has all of it."""
    global _vision
    if _vision is None and hasattr(lib(), "qkv_picture_read"):
        _vision = _declare(lib(), _vision_functions())
    if _vision is None:
        path = vision_path(lib()._name)
        try:
            _vision = _declare(C.CDLL(path), _vision_functions())
        except OSError as e:
            raise Error(f"cannot load '{path}', which pictures, tokenizers and segmenters need: {e}; `make` builds it "
                        "beside libqkv.so", 3) from None
    return _vision


def version() -> str:
    return lib().qkv_version().decode()


def check(ok, error):
    """Raises `error` unless ok."""
    if not ok:
        raise Error(error.message.decode(errors="replace"), error.code)


def choice(kind, name):
    """The value of qkv_<kind> that has this name."""
    value = C.c_int()
    if getattr(lib(), f"qkv_{kind}_from_name")(name.encode(), C.byref(value)):
        return value.value
    name_of, values = getattr(lib(), f"qkv_{kind}_name"), range(8) if kind not in SUMS else (1 << i for i in range(8))
    names = [n.decode() for n in map(name_of, values) if n]
    raise Error(f"{kind.split('_')[-1]} '{name}': expected {', '.join(names[:-1])} or {names[-1]}", 2)


def text(pointer, error):
    """A char * result: copied and freed."""
    check(pointer, error)
    try:
        return C.string_at(pointer).decode()
    finally:
        lib().qkv_free(pointer)
