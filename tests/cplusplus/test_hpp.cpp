// qkv.hpp against a small model: test_hpp MODEL FOLDER, the model mha_self.pt2 and a folder to write to. TAP.
#include <qkv.hpp>
#include <cstdio>
#include <type_traits>
#include <vector>

static int n, failed;

static void ok(bool good, const char *name)
{
    std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++n, name);
    failed += !good;
}

static bool says(const qkv::error &e, qkv_status code, const char *part)
{
    bool good = e.code == code && e.message.find(part) != std::string::npos;
    if (!good) std::printf("# %d: %s\n", static_cast<int>(e.code), e.message.c_str());
    return good;
}

static_assert(qkv::dtype_of<const float>() == QKV_F32 && qkv::dtype_of<long>() == QKV_I64 &&
              qkv::dtype_of<long long>() == QKV_I64 && qkv::dtype_of<unsigned char>() == QKV_U8 &&
              qkv::dtype_of<bool>() == QKV_BOOL);
static_assert(!std::is_copy_constructible_v<qkv::session> && std::is_nothrow_move_constructible_v<qkv::session>);
static_assert(std::is_copy_constructible_v<qkv::model>);
static_assert(!std::is_constructible_v<qkv::view, std::vector<float>, std::vector<std::int64_t>>, "it would dangle");

static void test_values(const qkv::model &model)
{
    std::vector<float> x(2 * 5 * 16);
    for (std::size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i % 7) - 3;
    qkv::view in(x, {2, 5, 16});
    auto session = model.open();
    ok(bool(session), "a session");
    auto out = session->run({{"x", in}});
    ok(out && out->size() == model.output_count(), "run by name");
    auto named = (*out)[0].to<float>();
    ok(named && !named->empty() && (*out)[0].shape().size() == 3, "an output by position, copied");
    auto found = out->find(model.output_name(0));
    ok(found && found->to<float>().value() == *named, "and by name");
    ok(says(out->find("nonsense").error(), QKV_USAGE, "nonsense"), "an output that there is not");
    ok(says((*out)[0].to<double>().error(), QKV_USAGE, "f32, asked for as f64"), "of another type");
    ok((*out)[0].as<std::int64_t>() == nullptr && (*out)[0].as<float>() != nullptr, "as a pointer");
    qkv::session other = model.open().value();
    ok(other.run({in}).value()["output_0"].to<float>().value() == *named, "run by position: the same");

    std::vector<float> turned(x.size()); // (16, 5, 2), seen as (2, 5, 16)
    for (std::size_t i = 0; i < x.size(); i++) turned[i % 16 * 10 + i / 16 % 5 * 2 + i / 80] = x[i];
    qkv::view strided(turned.data(), {2, 5, 16}, {1, 2, 10});
    ok(strided.to<float>().value() == x, "a strided view, copied");
    ok(other.run({{"x", strided}}).value()[0].to<float>().value() == *named, "and as an input");
    ok(says(other.run({{"y", in}}).error(), QKV_USAGE, "y"), "an input that there is not");
    ok(says(other.set("x", qkv::view(x, {3, 5, 16})).error(), QKV_USAGE, "number of elements"), "too small a vector");
    ok(says(other.set(0, qkv::view(x.data(), {2, 5, 16}, {1})).error(), QKV_USAGE, "strides"), "too few strides");
    qkv::session moved = std::move(other);
    ok(bool(moved.run({in})), "a session that moved");
    ok(moved.random_inputs({}, 3) && moved.run(), "random inputs");
    ok(bool(moved.keep("x")), "keep");
}

static void test_executor(const qkv::model &model)
{
    std::vector<float> x(8 * 64 * 16, 0.25f); // large enough for several threads
    qkv::view in(x, {8, 64, 16});
    int calls = 0;
    qkv::executor mine;
    mine.user = &calls;
    mine.run = [](void *user, int tasks, void (*task)(void *, int), void *data) {
        for (int i = tasks - 1; i >= 0; i--) task(data, i);
        ++*static_cast<int *>(user);
    };
    qkv::session_options on_mine;
    on_mine.threads = 3;
    on_mine.executor = &mine;
    auto want = model.open().value().run({in}).value()[0].to<float>().value();
    ok(model.open(on_mine).value().run({in}).value()[0].to<float>().value() == want && calls > 0,
       "the caller's executor: the same bits");
}

static void test_files(const qkv::model &model, const std::string &folder)
{
    std::vector<float> x(2 * 5 * 16, 0.5f);
    auto result_of = [&](const qkv::result<qkv::model> &m) {
        return m.value().open().value().run({qkv::view(x, {2, 5, 16})}).value()[0].to<float>().value();
    };
    std::string report;
    auto rewritten = model.rewrite({}, &report);
    ok(rewritten && report.find("\"attentions_fused\"") != std::string::npos, "rewrite, and its report");
    ok(bool(rewritten->save(folder + "/m.pt2")), "save");
    ok(bool(rewritten->save_onnx(folder + "/m.onnx")), "save_onnx");
    ok(bool(rewritten->pack(folder + "/m.qkv")), "pack");
    qkv::load_options read;
    read.no_mmap = 1;
    ok(result_of(qkv::model::load(folder + "/m.pt2")) == result_of(qkv::model::load(folder + "/m.qkv", read)),
       "what was saved and packed runs alike");
    qkv::load_options keep;
    const std::string cache = folder + "/cache";
    std::string note;
    keep.cache = cache.c_str();
    ok(qkv::model::load(folder + "/m.pt2", keep).value().cached(&note) && note.find(cache) == 0, "a cache");
    ok(!model.cached(&note) && note.empty(), "which others do without");
    ok(bool(qkv::write_tensors(folder + "/x.npz", {{"x", qkv::view(x, {2, 5, 16})}})), "write_tensors");
    auto file = qkv::tensors::open(folder + "/x.npz");
    ok(file && file->size() == 1 && file->name(0) == "x" && (*file)["x"].value().to<float>().value() == x,
       "tensors of a file");
    ok(says((*file)["y"].error(), QKV_USAGE, "'y'"), "a tensor that the file lacks");
    ok(!qkv::tensors::open(folder + "/nowhere.npz"), "a file of tensors that there is not");
    ok(says(qkv::model::load_memory("nothing", 7).error(), QKV_UNREADABLE, "(memory)"), "bytes that are not a model");
}

static qkv::result<qkv::session> session_of(const char *path) // the session outlives the caller's model
{
    auto model = qkv::model::load(path);
    if (!model) return model.error();
    return model->open();
}

#if defined(__cpp_exceptions)
static void test_exceptions()
{
    try {
        qkv::model::load("nowhere.pt2").value();
        ok(false, "value() throws");
    } catch (const qkv::exception &e) {
        ok(e.code() == QKV_UNREADABLE && std::string(e.what()).find("nowhere.pt2") != std::string::npos,
           "value() throws");
    }
}
#endif

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    auto model = qkv::model::load(argv[1]);
    ok(bool(model), "load");
    if (!model) return 1;
    auto inputs = model->inputs();
    ok(inputs.size() == 1 && inputs[0].name == "x" && inputs[0].dtype == QKV_F32 && inputs[0].shape.size() == 3 &&
           inputs[0].shape[2] == "16",
       "inputs");
    ok(model->describe().value().find("\"inputs\"") != std::string::npos, "describe");
    ok(says(qkv::model::load("nowhere.pt2").error(), QKV_UNREADABLE, "nowhere.pt2"), "a file that there is not");
    test_values(*model);
    test_executor(*model);
    test_files(*model, argv[2]);
    auto session = session_of(argv[1]);
    ok(session && session->random_inputs() && session->run(), "a session keeps its model alive");
#if defined(__cpp_exceptions)
    test_exceptions();
#endif
    std::printf("1..%d\n", n);
    return failed ? 1 : 0;
}
