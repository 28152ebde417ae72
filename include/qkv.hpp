// qkv for C++17: models, sessions and tensors that free themselves, over qkv.h and qkv_tools.h.
//
//     qkv::model m = qkv::model::load("vit.pt2").value();
//     qkv::session s = m.open().value();
//     std::vector<float> pixels(3 * 224 * 224);
//     qkv::outputs out = s.run({{"pixel_values", qkv::view(pixels, {1, 3, 224, 224})}}).value();
//     std::vector<float> logits = out["logits"].to<float>().value();       or out[0]
//
// What can fail returns a qkv::result: it holds a value or a qkv::error, and is true where it holds a value.
//
//     if (auto m = qkv::model::load(path)) use(*m);
//     else std::fprintf(stderr, "%s\n", m.error().message.c_str());
//
// value() is for those who want no branch: where there is an error it throws qkv::exception. In a program built with
// -fno-exceptions it prints the error to stderr and aborts; everything else works there as anywhere, and without RTTI.
// Whatever this header lacks takes handle(), the pointer that qkv.h and its other headers want.
#ifndef QKV_HPP
#define QKV_HPP
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#include "qkv.h"
#include "qkv_tools.h"

#if defined(__cpp_exceptions)
#include <exception>
#endif

namespace qkv
{

// ---------------------------------------------------------------- errors and results

struct error {
    qkv_status code = QKV_OK;
    std::string message; // one sentence, outermost place first

    error() = default;
    error(qkv_status c, std::string m) : code(c), message(std::move(m)) {}
    explicit error(const qkv_error &e) : code(e.code), message(e.message) {}
};

#if defined(__cpp_exceptions)
class exception : public std::exception
{
  public:
    explicit exception(error e) : error_(std::make_shared<error>(std::move(e))) {}
    const char *what() const noexcept override { return error_->message.c_str(); }
    qkv_status code() const noexcept { return error_->code; }

  private:
    std::shared_ptr<const error> error_; // copying an exception must not throw
};
#endif

namespace detail
{
[[noreturn]] inline void raise(const error &e)
{
#if defined(__cpp_exceptions)
    throw exception(e);
#else
    std::fprintf(stderr, "qkv: error: %s\n", e.message.c_str());
    std::abort();
#endif
}
} // namespace detail

// A value, or why there is none. * and -> are for a result that was found to hold a value.
template <class T> class [[nodiscard]] result
{
  public:
    result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
    result(qkv::error e) : held_(std::in_place_index<1>, std::move(e)) {}

    explicit operator bool() const noexcept { return held_.index() == 0; }
    T &operator*() &noexcept { return *std::get_if<0>(&held_); }
    const T &operator*() const &noexcept { return *std::get_if<0>(&held_); }
    T &&operator*() &&noexcept { return std::move(*std::get_if<0>(&held_)); }
    T *operator->() noexcept { return std::get_if<0>(&held_); }
    const T *operator->() const noexcept { return std::get_if<0>(&held_); }
    const qkv::error &error() const noexcept { return *std::get_if<1>(&held_); } // only where it is false

    T &value() & { return must(), **this; }
    const T &value() const & { return must(), **this; }
    T value() && { return must(), std::move(**this); }
    T value_or(T other) && { return *this ? std::move(**this) : std::move(other); }

  private:
    void must() const
    {
        if (!*this) detail::raise(error());
    }
    std::variant<T, qkv::error> held_;
};

template <> class [[nodiscard]] result<void>
{
  public:
    result() = default;
    result(qkv::error e) : error_(std::move(e)) {}
    explicit operator bool() const noexcept { return error_.code == QKV_OK; }
    const qkv::error &error() const noexcept { return error_; }
    void value() const
    {
        if (!*this) detail::raise(error_);
    }

  private:
    qkv::error error_;
};

namespace detail
{
inline result<void> done(qkv_status s, const qkv_error &e)
{
    return s == QKV_OK ? result<void>() : result<void>(error(e));
}
inline std::string taken(char *text) // a string that the library gave away
{
    std::string s = text ? text : "";
    qkv_free(text);
    return s;
}
template <class Options> Options sized()
{
    Options o = Options();
    o.struct_size = sizeof o;
    return o;
}
} // namespace detail

// The C structs of options with struct_size set and all else 0: qkv::load_options o; o.compute = QKV_BF16;
struct load_options : qkv_load_options {
    load_options() : qkv_load_options(detail::sized<qkv_load_options>()) {}
};
struct session_options : qkv_session_options {
    session_options() : qkv_session_options(detail::sized<qkv_session_options>()) {}
};
struct executor : qkv_executor {
    executor() : qkv_executor(detail::sized<qkv_executor>()) {}
};
struct rewrite_options : qkv_rewrite_options {
    rewrite_options() : qkv_rewrite_options(detail::sized<qkv_rewrite_options>()) {}
};
struct onnx_options : qkv_onnx_options {
    onnx_options() : qkv_onnx_options(detail::sized<qkv_onnx_options>()) {}
};

// ---------------------------------------------------------------- tensors

// The dtype of a C++ type: float, double, bool and the integers. f16 and bf16 have no type in C++17: views of them are
// made from a pointer and QKV_F16 or QKV_BF16.
template <class T> constexpr qkv_dtype dtype_of() noexcept
{
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, float>) return QKV_F32;
    else if constexpr (std::is_same_v<U, double>) return QKV_F64;
    else if constexpr (std::is_same_v<U, bool>) return QKV_BOOL;
    else {
        static_assert(std::is_integral_v<U>, "qkv: this type is not a tensor's element");
        constexpr bool s = std::is_signed_v<U>;
        if constexpr (sizeof(U) == 8) return s ? QKV_I64 : QKV_U64;
        else if constexpr (sizeof(U) == 4) return s ? QKV_I32 : QKV_U32;
        else if constexpr (sizeof(U) == 2) return s ? QKV_I16 : QKV_U16;
        else return s ? QKV_I8 : QKV_U8;
    }
}

// Memory of somebody else, seen as a tensor. Sizes and strides are in elements; without strides it is contiguous.
class view
{
  public:
    view() = default;
    template <class T>
    view(const T *data, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {})
        : view(dtype_of<T>(), data, std::move(shape), std::move(strides))
    {
    }
    // The vector must have as many elements as the shape, and must outlive the view.
    template <class T, class A>
    view(const std::vector<T, A> &data, std::vector<std::int64_t> shape) : view(data.data(), std::move(shape))
    {
        static_assert(!std::is_same_v<T, bool>, "qkv: std::vector<bool> is not an array of bool; use unsigned char");
        enough_ = size() == data.size();
    }
    template <class T, class A> view(std::vector<T, A> &&, std::vector<std::int64_t>) = delete; // it would be gone
    view(qkv_dtype dtype, const void *data, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {})
        : dtype_(dtype), data_(data), shape_(std::move(shape)), strides_(std::move(strides))
    {
        enough_ = strides_.empty() || strides_.size() == shape_.size();
    }
    explicit view(const qkv_tensor &t)
        : dtype_(t.dtype), data_(t.data), shape_(t.shape, t.shape + t.rank),
          strides_(t.strides, t.strides ? t.strides + t.rank : nullptr)
    {
    }

    qkv_dtype dtype() const noexcept { return dtype_; }
    const std::vector<std::int64_t> &shape() const noexcept { return shape_; }
    const std::vector<std::int64_t> &strides() const noexcept { return strides_; } // empty: contiguous
    const void *data() const noexcept { return data_; }
    std::size_t size() const noexcept // elements
    {
        std::size_t n = 1;
        for (std::int64_t s : shape_) n *= static_cast<std::size_t>(s);
        return n;
    }
    // The elements where they lie; NULL where they are of another type. Outputs of sessions are contiguous.
    template <class T> const T *as() const noexcept
    {
        return dtype_ == dtype_of<T>() ? static_cast<const T *>(data_) : nullptr;
    }
    // A copy of the elements, row by row.
    template <class T> result<std::vector<T>> to() const
    {
        const T *from = as<T>();
        if (!from && !(dtype_ == dtype_of<T>() && size() == 0))
            return error(QKV_USAGE, std::string("the tensor is ") + qkv_dtype_name(dtype_) + ", asked for as " +
                                        qkv_dtype_name(dtype_of<T>()));
        std::vector<T> out(size());
        for (std::size_t i = 0; i < out.size(); i++) out[i] = from[place(i)];
        return out;
    }
    // What the C functions take; valid as long as this view.
    result<qkv_tensor> c() const
    {
        if (!enough_)
            return error(QKV_USAGE, "a view of rank " + std::to_string(shape_.size()) +
                                        ": its vector has another number of elements than its shape, or its strides "
                                        "are fewer than its axes");
        qkv_tensor t = qkv_tensor();
        t.dtype = dtype_;
        t.rank = static_cast<int>(shape_.size());
        t.shape = shape_.data();
        t.strides = strides_.empty() ? nullptr : strides_.data();
        t.data = const_cast<void *>(data_);
        return t;
    }

  private:
    std::size_t place(std::size_t i) const noexcept // of element i, row by row
    {
        if (strides_.empty()) return i;
        std::int64_t at = 0;
        for (std::size_t k = shape_.size(); k-- > 0; i /= static_cast<std::size_t>(shape_[k]))
            at += static_cast<std::int64_t>(i % static_cast<std::size_t>(shape_[k])) * strides_[k];
        return static_cast<std::size_t>(at);
    }
    qkv_dtype dtype_ = QKV_NONE;
    const void *data_ = nullptr;
    std::vector<std::int64_t> shape_, strides_;
    bool enough_ = true;
};

// Tensors of a .safetensors, .npz or .npy file.
class tensors
{
  public:
    static result<tensors> open(const std::string &path)
    {
        qkv_error e;
        if (qkv_tensors *t = qkv_tensors_open(path.c_str(), &e)) return tensors(t);
        return error(e);
    }
    int size() const noexcept { return qkv_tensors_count(handle()); }
    std::string name(int i) const { return qkv_tensors_name(handle(), i); }
    result<view> operator[](const std::string &name) const // valid as long as the file is open
    {
        if (const qkv_tensor *t = qkv_tensors_find(handle(), name.c_str())) return view(*t);
        return error(QKV_USAGE, "the file has no tensor called '" + name + "'");
    }
    qkv_tensors *handle() const noexcept { return file_.get(); }

  private:
    explicit tensors(qkv_tensors *t) : file_(t) {}
    struct closer {
        void operator()(qkv_tensors *t) const noexcept { qkv_tensors_free(t); }
    };
    std::unique_ptr<qkv_tensors, closer> file_;
};

// Writes such a file, completely or not at all; the ending of path chooses the format.
inline result<void> write_tensors(const std::string &path, const std::vector<std::pair<std::string, view>> &named)
{
    std::vector<const char *> names;
    std::vector<qkv_tensor> all;
    for (const auto &t : named) {
        auto c = t.second.c();
        if (!c) return c.error();
        names.push_back(t.first.c_str());
        all.push_back(*c);
    }
    qkv_error e;
    return detail::done(qkv_tensors_write(path.c_str(), names.data(), all.data(), static_cast<int>(all.size()), &e), e);
}

// ---------------------------------------------------------------- sessions

// One input of a run: session::run({x, mask}) by position, session::run({{"x", x}, {"mask", mask}}) by name.
struct input {
    std::string name; // "": by its place in the list
    view value;
    input(view v) : value(std::move(v)) {}
    input(std::string n, view v) : name(std::move(n)), value(std::move(v)) {}
};

class session;

// The results of a session's last run: valid until its next one.
class outputs
{
  public:
    int size() const noexcept { return count_; }
    inline view operator[](int i) const;                     // an index that there is
    inline view operator[](const char *name) const;          // a name that there is: value() of find
    inline result<view> find(const std::string &name) const; // the module's name, "output_0" or "0"

  private:
    friend class session;
    outputs(qkv_session *s, int n) : session_(s), count_(n) {}
    qkv_session *session_;
    int count_;
};

// Runs a model; for one thread at a time. It keeps its model alive.
class session
{
  public:
    // Inputs are borrowed until run returns.
    result<void> set(const std::string &name, const view &v)
    {
        qkv_error e;
        result<qkv_tensor> t = v.c();
        if (!t) return t.error();
        return detail::done(qkv_session_set_input(handle(), name.c_str(), &*t, &e), e);
    }
    result<void> set(int i, const view &v) { return set(std::to_string(i), v); }
    result<outputs> run()
    {
        qkv_error e;
        if (qkv_session_run(handle(), &e)) return error(e);
        return outputs(handle(), qkv_model_output_count(model_.get()));
    }
    result<outputs> run(std::initializer_list<input> list)
    {
        int i = 0;
        for (const input &in : list) {
            result<void> ok = in.name.empty() ? set(i, in.value) : set(in.name, in.value);
            if (!ok) return ok.error();
            i++;
        }
        return run();
    }
    // Sizes that are not named take the smallest value that the model allows.
    result<void> random_inputs(const std::vector<std::pair<std::string, std::int64_t>> &sizes = {},
                               std::uint64_t seed = 0)
    {
        qkv_error e;
        std::vector<const char *> names;
        std::vector<std::int64_t> values;
        for (const auto &s : sizes) {
            names.push_back(s.first.c_str());
            values.push_back(s.second);
        }
        return detail::done(
            qkv_session_random_inputs(handle(), names.data(), values.data(), static_cast<int>(names.size()), seed, &e),
            e);
    }
    // The input keeps its value until it is set again, and what depends on it alone is computed once.
    result<void> keep(const std::string &name)
    {
        qkv_error e;
        return detail::done(qkv_session_keep(handle(), name.c_str(), &e), e);
    }
    void clear_inputs() noexcept { qkv_session_clear_inputs(handle()); }
    void reset() noexcept { qkv_session_reset(handle()); }
    void cancel(bool on = true) noexcept { qkv_session_cancel(handle(), on); } // from any thread
    void seed(std::uint64_t n) noexcept { qkv_session_seed(handle(), n); }
    qkv_session *handle() const noexcept { return session_.get(); }

  private:
    friend class model;
    session(std::shared_ptr<qkv_model> m, qkv_session *s) : model_(std::move(m)), session_(s) {}
    struct closer {
        void operator()(qkv_session *s) const noexcept { qkv_session_free(s); }
    };
    std::shared_ptr<qkv_model> model_; // freed after the session
    std::unique_ptr<qkv_session, closer> session_;
};

view outputs::operator[](int i) const
{
    qkv_error e;
    qkv_tensor t;
    if (qkv_session_output(session_, i, &t, &e)) detail::raise(error(e));
    return view(t);
}

result<view> outputs::find(const std::string &name) const
{
    qkv_error e;
    qkv_tensor t;
    if (qkv_session_output_by_name(session_, name.c_str(), &t, &e)) return error(e);
    return view(t);
}

view outputs::operator[](const char *name) const { return find(name).value(); }

// ---------------------------------------------------------------- models

struct input_info {
    std::string name;
    qkv_dtype dtype;
    std::vector<std::string> shape; // "3", "s0", "14*s1"
};

// A file that was read. It never changes: copies are the same model, and any number of threads may use them.
class model
{
  public:
    static result<model> load(const std::string &path, const load_options &o = {})
    {
        qkv_error e;
        return made(qkv_model_load(path.c_str(), &o, &e), e);
    }
    static result<model> load_memory(const void *bytes, std::size_t n, const load_options &o = {}) // copied
    {
        qkv_error e;
        return made(qkv_model_load_memory(bytes, n, &o, &e), e);
    }

    // Was it mapped from the folder of load_options::cache? note: which file it is, or why not.
    bool cached(std::string *note = nullptr) const
    {
        const char *text = nullptr;
        int used = qkv_model_cached(handle(), &text);
        if (note) *note = text ? text : "";
        return used != 0;
    }
    int input_count() const noexcept { return qkv_model_input_count(handle()); }
    int output_count() const noexcept { return qkv_model_output_count(handle()); }
    std::string output_name(int i) const // the module's: "logits"; "output_0" where it has none
    {
        const char *name = qkv_model_output_label(handle(), i);
        return name ? name : "";
    }
    std::vector<input_info> inputs() const
    {
        std::vector<input_info> all;
        for (int i = 0; i < input_count(); i++) {
            all.push_back({qkv_model_input_name(handle(), i), qkv_model_input_dtype(handle(), i), {}});
            for (int k = 0; k < qkv_model_input_rank(handle(), i); k++)
                all.back().shape.push_back(qkv_model_input_dim(handle(), i, k));
        }
        return all;
    }
    // One JSON object: qkv_model_describe names its keys.
    result<std::string> describe() const
    {
        qkv_error e;
        char *text = qkv_model_describe(handle(), &e);
        if (!text) return error(e);
        return detail::taken(text);
    }

    result<session> open(const session_options &o = {}) const
    {
        qkv_error e;
        qkv_session *s = qkv_session_create(handle(), &o, &e);
        if (!s) return error(e);
        return session(model_, s);
    }

    // A new model in which attention in any spelling is one op. report: JSON, also where a proof fails.
    result<model> rewrite(const rewrite_options &o = {}, std::string *report = nullptr) const
    {
        qkv_error e;
        char *text = nullptr;
        qkv_model *m = qkv_model_rewrite(handle(), &o, report ? &text : nullptr, &e);
        if (report) *report = detail::taken(text);
        return made(m, e);
    }
    result<void> save(const std::string &path) const // .pt2
    {
        qkv_error e;
        return detail::done(qkv_model_save(handle(), path.c_str(), &e), e);
    }
    result<void> save_onnx(const std::string &path, const onnx_options &o = {}, std::string *report = nullptr) const
    {
        qkv_error e;
        char *text = nullptr;
        qkv_status s = qkv_model_save_onnx(handle(), path.c_str(), &o, report ? &text : nullptr, &e);
        if (report) *report = detail::taken(text);
        return detail::done(s, e);
    }
    result<void> pack(const std::string &path) const // .qkv, for this CPU
    {
        qkv_error e;
        return detail::done(qkv_model_pack(handle(), path.c_str(), nullptr, &e), e);
    }
    qkv_model *handle() const noexcept { return model_.get(); }

  private:
    explicit model(qkv_model *m) : model_(m, [](qkv_model *p) { qkv_model_free(p); }) {}
    static result<model> made(qkv_model *m, const qkv_error &e)
    {
        if (!m) return error(e);
        return model(m);
    }
    std::shared_ptr<qkv_model> model_;
};

inline std::string version() { return qkv_version(); }
inline std::string cpu() { return qkv_cpu(); } // the ISA level in use

} // namespace qkv
#endif
