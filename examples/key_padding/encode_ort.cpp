/* encode.c on ONNX Runtime, for comparison: the same sequences, one batch, the same file of results.
 *
 *     g++ -std=c++20 encode_ort.cpp -I$ORT/include $(pkg-config --cflags --libs qkv) -L$ORT/lib -lonnxruntime \
 *         -o encode_ort
 *     ./encode_ort encoder.onnx sequences.safetensors out.safetensors
 *
 * ONNX Runtime reads no .pt2 and no tensor files: qkv converts the model (step 2 of docs/KEY_PADDING_MASK.md), and
 * reads and writes the sequences here.
 */
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include <onnxruntime_cxx_api.h>
#include <qkv.h>

using Tensors = std::unique_ptr<qkv_tensors, decltype(&qkv_tensors_free)>;

struct Batch {
    std::vector<int64_t> length;
    int64_t longest = 0, width = 0;
    std::vector<float> x;     // (n, longest, width)
    std::vector<char> masked; // (n, longest), true = padding
    std::vector<float> added; // the same, -inf = padding
};

static Batch read(const char *path)
{
    qkv_error e = {};
    Tensors in(qkv_tensors_open(path, &e), qkv_tensors_free);
    if (!in) throw std::runtime_error(e.message);
    Batch b;
    std::vector<const qkv_tensor *> rows;
    for (int i = 0; i < qkv_tensors_count(in.get()); i++) {
        const qkv_tensor *t = qkv_tensors_find(in.get(), std::to_string(i).c_str());
        if (!t || t->dtype != QKV_F32 || t->rank != 2 || (i && t->shape[1] != b.width))
            throw std::runtime_error("expected float32 tensors \"0\", \"1\", ... of (length, width)");
        rows.push_back(t);
        b.length.push_back(t->shape[0]);
        b.longest = std::max(b.longest, t->shape[0]);
        b.width = t->shape[1];
    }
    b.x.resize(rows.size() * b.longest * b.width);
    b.masked.resize(rows.size() * b.longest);
    b.added.resize(b.masked.size());
    for (size_t i = 0; i < rows.size(); i++) {
        std::memcpy(&b.x[i * b.longest * b.width], rows[i]->data, b.length[i] * b.width * sizeof(float));
        for (int64_t k = b.length[i]; k < b.longest; k++) {
            b.masked[i * b.longest + k] = true;
            b.added[i * b.longest + k] = -INFINITY;
        }
    }
    return b;
}

/* Each sequence's rows of y (n, longest, width), under its name. */
static void write(const char *path, const Batch &b, float *y, int64_t width)
{
    size_t n = b.length.size();
    std::vector<std::string> text(n);
    std::vector<const char *> name(n);
    std::vector<std::array<int64_t, 2>> shape(n);
    std::vector<qkv_tensor> out(n);
    for (size_t i = 0; i < n; i++) {
        name[i] = (text[i] = std::to_string(i)).c_str();
        shape[i] = {b.length[i], width};
        out[i].dtype = QKV_F32;
        out[i].rank = 2;
        out[i].shape = shape[i].data();
        out[i].data = y + i * b.longest * width;
    }
    qkv_error e = {};
    if (qkv_tensors_write(path, name.data(), out.data(), static_cast<int>(n), &e)) throw std::runtime_error(e.message);
}

static void encode(const char *model, const char *sequences, const char *results)
{
    Batch b = read(sequences);
    Ort::Env env;
    Ort::Session session(env, model, Ort::SessionOptions());
    Ort::AllocatorWithDefaultOptions allocator;
    auto name = [&](size_t i) { return session.GetInputNameAllocated(i, allocator); };
    if (session.GetInputCount() != 2) throw std::runtime_error("the model must take (src, mask) or (src, lengths)");
    int64_t n = static_cast<int64_t>(b.length.size());
    std::array<int64_t, 3> x_shape = {n, b.longest, b.width};
    std::array<int64_t, 2> mask_shape = {n, b.longest};
    auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    auto second = [&]() {
        auto type = session.GetInputTypeInfo(1); /* which owns what it returns */
        auto info = type.GetTensorTypeAndShapeInfo();
        if (info.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64)
            return Ort::Value::CreateTensor(memory, b.length.data(), b.length.size(), mask_shape.data(), 1);
        if (info.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL)
            return Ort::Value::CreateTensor(memory, reinterpret_cast<bool *>(b.masked.data()), b.masked.size(),
                                            mask_shape.data(), 2);
        return Ort::Value::CreateTensor(memory, b.added.data(), b.added.size(), mask_shape.data(), 2);
    };
    std::array<Ort::Value, 2> in = {
        Ort::Value::CreateTensor(memory, b.x.data(), b.x.size(), x_shape.data(), x_shape.size()), second()};
    auto first = name(0), other = name(1), result = session.GetOutputNameAllocated(0, allocator);
    std::array<const char *, 2> names = {first.get(), other.get()};
    const char *wanted = result.get();
    std::vector<Ort::Value> y = session.Run(Ort::RunOptions(), names.data(), in.data(), in.size(), &wanted, 1);
    write(results, b, y[0].GetTensorMutableData<float>(), y[0].GetTensorTypeAndShapeInfo().GetShape()[2]);
    std::printf("%lld sequences of up to %lld positions in one run\n", static_cast<long long>(n),
                static_cast<long long>(b.longest));
}

int main(int argc, char **argv)
{
    if (argc != 4) return std::fprintf(stderr, "encode_ort: usage: encode_ort MODEL SEQUENCES OUT\n"), 2;
    try {
        encode(argv[1], argv[2], argv[3]);
    } catch (const std::exception &e) {
        return std::fprintf(stderr, "encode_ort: %s\n", e.what()), 1;
    }
    return 0;
}
