// Runs a model on tensors of a file, or on random inputs, and prints the first value of each output; what embed.c does,
// with qkv.hpp.
//
//   c++ -std=c++17 embed.cpp $(pkg-config --cflags --libs qkv) -o embed && ./embed model.pt2 [in.safetensors]
#include <cstdio>
#include <qkv.hpp>

static int failed(const qkv::error &e)
{
    std::fprintf(stderr, "%s\n", e.message.c_str());
    return e.code;
}

static qkv::result<qkv::outputs> run(const qkv::model &model, qkv::session &session, const char *file)
{
    if (!file) {
        if (auto ok = session.random_inputs({}, 1); !ok) return ok.error();
        return session.run();
    }
    auto tensors = qkv::tensors::open(file);
    if (!tensors) return tensors.error();
    for (const qkv::input_info &in : model.inputs()) {
        auto value = (*tensors)[in.name];
        if (!value) return value.error();
        if (auto ok = session.set(in.name, *value); !ok) return ok.error();
    }
    return session.run();
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        std::fprintf(stderr, "usage: %s MODEL.pt2 [INPUTS.safetensors]\n", argv[0]);
        return QKV_USAGE;
    }
    auto model = qkv::model::load(argv[1]);
    if (!model) return failed(model.error());
    auto session = model->open();
    if (!session) return failed(session.error());
    auto out = run(*model, *session, argc > 2 ? argv[2] : nullptr);
    if (!out) return failed(out.error());
    for (int i = 0; i < out->size(); i++) {
        qkv::view y = (*out)[i];
        std::printf("%s %s", model->output_name(i).c_str(), qkv_dtype_name(y.dtype()));
        for (std::int64_t n : y.shape()) std::printf(" %lld", static_cast<long long>(n));
        if (const float *x = y.as<float>(); x && y.size()) std::printf(": %g", static_cast<double>(*x));
        std::printf("\n");
    }
    return 0;
}
