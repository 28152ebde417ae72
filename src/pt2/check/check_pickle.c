/* What a pickle would import, read from its opcodes; nothing is run. Contract in check.h.
 *
 *     0x80 2  ...  'c' "torch._utils\n_rebuild_tensor_v2\n"  ...  '.'        a tensor: Q901
 *     0x80 4  ...  "os" "system" 0x93 ...                                   a call: Q902
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "verify/check.h"
#include "base/mem.h"

enum { MAX_GLOBAL = 128, MAX_MEMO = 4096 };

/* How long an opcode's operand is: a fixed number of bytes, or how its length is written. */
enum { LINE = -1, TWO_LINES = -2, LEN1 = -3, LEN4 = -4, LEN8 = -5, UNKNOWN = -9 };

static int operand(unsigned char op)
{
    switch (op) {
    case '(':
    case '.':
    case '0':
    case '1':
    case '2':
    case 'N':
    case 'a':
    case 'b':
    case 'd':
    case '}':
    case 'e':
    case 'l':
    case ']':
    case 'o':
    case 'R':
    case 's':
    case 't':
    case ')':
    case 'u':
    case 'Q':
    case 0x81:
    case 0x85:
    case 0x86:
    case 0x87:
    case 0x88:
    case 0x89:
    case 0x8f:
    case 0x90:
    case 0x91:
    case 0x92:
    case 0x93:
    case 0x94:
    case 0x97:
    case 0x98: return 0;
    case 'K':
    case 'h':
    case 'q':
    case 0x80:
    case 0x82: return 1;
    case 'M':
    case 0x83: return 2;
    case 'J':
    case 'j':
    case 'r':
    case 0x84: return 4;
    case 'G':
    case 0x95: return 8;
    case 'F':
    case 'I':
    case 'L':
    case 'P':
    case 'S':
    case 'V':
    case 'g':
    case 'p': return LINE;
    case 'c':
    case 'i': return TWO_LINES;
    case 'U':
    case 'C':
    case 0x8a:
    case 0x8c: return LEN1;
    case 'T':
    case 'B':
    case 'X':
    case 0x8b: return LEN4;
    case 0x8d:
    case 0x8e:
    case 0x96: return LEN8;
    default: return UNKNOWN;
    }
}

typedef struct Text {
    const unsigned char *p;
    uint64_t n;
} Text;

typedef struct Pickle {
    const unsigned char *p;
    uint64_t size, at;
    Text last, before; /* the strings pushed last: what 0x93 takes for module and name */
    Text memo[MAX_MEMO];
    int nmemo;
    char odd[1024], bad[1024]; /* imports that are not tensors'; that run code */
} Pickle;

static bool starts(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

static bool of_tensors(const char *module, const char *name)
{
    static const char *const dtypes[] = {"float", "double", "half",    "bfloat", "int",    "uint",  "long",
                                         "short", "bool",   "complex", "Size",   "device", "dtype", "strided"};
    if (!strcmp(module, "_codecs")) return !strcmp(name, "encode"); /* bytes, in protocols below 3 */
    if (!strcmp(module, "collections")) return !strcmp(name, "OrderedDict");
    if (!strcmp(module, "torch._utils")) return starts(name, "_rebuild_");
    if (!strcmp(module, "torch.storage")) return ends(name, "Storage");
    if (!strcmp(module, "torch.serialization")) return !strcmp(name, "_get_layout");
    if (!strcmp(module, "torch.nn.parameter")) return !strcmp(name, "Parameter") || !strcmp(name, "Buffer");
    if (strcmp(module, "torch")) return false;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (starts(name, dtypes[i])) return true;
    return ends(name, "Storage");
}

static bool runs_code(const char *module, const char *name)
{
    static const char *const modules[] = {"os",
                                          "posix",
                                          "nt",
                                          "subprocess",
                                          "sys",
                                          "socket",
                                          "shutil",
                                          "importlib",
                                          "runpy",
                                          "pty",
                                          "code",
                                          "ctypes",
                                          "pickle",
                                          "_pickle",
                                          "marshal",
                                          "webbrowser",
                                          "platform",
                                          "asyncio",
                                          "multiprocessing",
                                          "functools",
                                          "operator",
                                          "_operator",
                                          "types",
                                          "timeit",
                                          "pdb",
                                          "bdb",
                                          "urllib",
                                          "requests",
                                          "http",
                                          "tempfile",
                                          "pathlib"};
    static const char *const builtin[] = {"eval", "exec",  "compile",    "__import__", "getattr", "setattr",
                                          "open", "apply", "breakpoint", "globals",    "vars",    "execfile"};
    bool py = !strcmp(module, "builtins") || !strcmp(module, "__builtin__");
    for (size_t i = 0; py && i < sizeof builtin / sizeof *builtin; i++)
        if (!strcmp(name, builtin[i])) return true;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        size_t n = strlen(modules[i]);
        if (starts(module, modules[i]) && (!module[n] || module[n] == '.')) return true;
    }
    return false;
}

static void note(char *list, size_t cap, const char *module, const char *name)
{
    char item[2 * MAX_GLOBAL + 4];
    snprintf(item, sizeof item, "%s.%s", module, name);
    size_t n = strlen(list);
    if (strstr(list, item) || n + strlen(item) + 3 > cap) return;
    snprintf(list + n, cap - n, "%s%s", n ? ", " : "", item);
}

static void copy(char *to, Text t)
{
    snprintf(to, MAX_GLOBAL, "%.*s", (int)(t.n < MAX_GLOBAL ? t.n : MAX_GLOBAL - 1), t.p ? (const char *)t.p : "?");
}

static void import(Pickle *k, Text module, Text name)
{
    char m[MAX_GLOBAL], n[MAX_GLOBAL];
    copy(m, module);
    copy(n, name);
    if (of_tensors(m, n)) return;
    if (runs_code(m, n)) note(k->bad, sizeof k->bad, m, n);
    else note(k->odd, sizeof k->odd, m, n);
}

static bool line(Pickle *k, Text *out)
{
    const unsigned char *end = memchr(k->p + k->at, '\n', k->size - k->at);
    if (!end) return false;
    *out = (Text){k->p + k->at, (uint64_t)(end - k->p) - k->at};
    k->at += out->n + 1;
    return true;
}

static void pushed(Pickle *k, Text t)
{
    k->before = k->last;
    k->last = t;
}

static void remember(Pickle *k, uint64_t at)
{
    if (at < MAX_MEMO) k->memo[at] = k->last;
}

static uint64_t little(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* One opcode; false when the bytes are not a pickle. */
static bool step(Pickle *k, unsigned char op)
{
    Text a = {0}, b = {0};
    int n = operand(op);
    if (n == UNKNOWN) return false;
    if (n == LINE || n == TWO_LINES) {
        if (!line(k, &a) || (n == TWO_LINES && !line(k, &b))) return false;
        if (n == TWO_LINES) import(k, a, b);
        else if (op == 'V') pushed(k, a);
        else if (op == 'S') pushed(k, a.n >= 2 ? (Text){a.p + 1, a.n - 2} : a);
        else if (op == 'g' || op == 'p') {
            uint64_t at = (uint64_t)parse_int((const char *)a.p, NULL); /* ends at the newline */
            if (op == 'p') remember(k, at);
            else if (at < MAX_MEMO) pushed(k, k->memo[at]);
        }
        return true;
    }
    int head = n == LEN1 ? 1 : n == LEN4 ? 4 : n == LEN8 ? 8 : n;
    if (!in_range_u64(k->at, (uint64_t)head, k->size)) return false;
    uint64_t v = little(k->p + k->at, head);
    k->at += (uint64_t)head;
    if (n < 0) {
        if (!in_range_u64(k->at, v, k->size)) return false;
        if (op == 'U' || op == 'T' || op == 'X' || op == 0x8c || op == 0x8d) pushed(k, (Text){k->p + k->at, v});
        k->at += v;
    } else if (op == 'q' || op == 'r') remember(k, v);
    else if (op == 'h' || op == 'j') {
        if (v < MAX_MEMO) pushed(k, k->memo[v]);
    } else if (op == 0x94) remember(k, (uint64_t)k->nmemo++);
    else if (op == 0x93) import(k, k->before, k->last);
    else if (op == 0x82 || op == 0x83 || op == 0x84) note(k->odd, sizeof k->odd, "copyreg", "extension");
    return true;
}

void check_pickle(Check *c, const char *place, const unsigned char *bytes, uint64_t size)
{
    Pickle *k = mem_zeroed(1, sizeof *k);
    if (!k) {
        c->failed = true;
        return;
    }
    k->p = bytes;
    k->size = size;
    bool stopped = false, ok = true;
    while (ok && !stopped && k->at < size) {
        unsigned char op = bytes[k->at++];
        stopped = op == '.';
        ok = stopped || step(k, op);
    }
    if (*k->bad) check_add(c, Q(902), place, "loading this pickle would import %s", k->bad);
    if (*k->odd) check_add(c, Q(915), place, "loading this pickle would import %s", k->odd);
    if (!*k->bad && !*k->odd && stopped)
        check_add(c, Q(901), place, "a pickle of %llu bytes that rebuilds tensors", (unsigned long long)size);
    if (!stopped && !*k->bad)
        check_add(c, Q(199), place, "its opcodes cannot be followed beyond byte %llu of %llu",
                  (unsigned long long)k->at, (unsigned long long)size);
    mem_free(k);
}
