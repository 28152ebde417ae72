/* .safetensors: what opens has every byte of every tensor in the file. */
#include <string.h>
#include "fuzz.h"
#include "tensor_file.h"

static const char *const tokens[] = {
    "__metadata__", "\"dtype\":", "\"shape\":", "\"data_offsets\":", "F32", "BF16", "F8_E4M3", "I64", "[0,0]", "[-1]",
    "{}",           ",",          NULL};

static void seeds(FuzzAdd *add)
{
    static const char *const headers[] = {
        "{}", "{\"x\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]},\"b\":{"
        "\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}",
        "{\"odd\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"moved\":{\"dtype\":\"BF16\",\"shape\":[2,3]"
        ",\"data_offsets\":[3,15]},\"none\":{\"dtype\":\"I64\",\"shape\":[0,9],\"data_offsets\":[15,15]},\"bool\":{"
        "\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[15,16]}}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        uint8_t file[1024] = {0};
        uint64_t n = strlen(headers[i]);
        memcpy(file, &n, 8);
        memcpy(file + 8, headers[i], n);
        add(file, 8 + n + (i ? 16 : 0));
    }
}

/* The header changes, its length follows. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    uint8_t header[64 << 10];
    uint64_t n = 0;
    (void)seed;
    if (size >= 8) memcpy(&n, data, 8);
    if (size < 8 || n > size - 8 || n > sizeof header / 2 || fuzz_random(4) == 0)
        return LLVMFuzzerMutate(data, size, max);
    memcpy(header, data + 8, n);
    uint64_t made = json_mutate(header, n, sizeof header);
    if (size - n + made > max) return size;
    memmove(data + 8 + made, data + 8 + n, size - 8 - n);
    memcpy(data + 8, header, made);
    memcpy(data, &made, 8);
    return size - n + made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_tensor_file(data, size);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "safetensors", .tokens = tokens, .seeds = seeds, .ending = ".safetensors", .memory_ratio = 300};
