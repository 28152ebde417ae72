"""The formulas of certify/lemmas.def, read by another reader and evaluated element by element, beside PyTorch."""
import itertools
import math
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

TEXT = (pathlib.Path(__file__).parents[2] / "certify/lemmas.def").read_text()
# written in C: test_certify.py has spellings beside them
PLACES = {"view", "cat", "padded", "indexed", "cast", "written", "put", "rotary"}


def formulas():
    """{op: formula}, with the macros of the file."""
    joined = re.sub(r"\\\n", " ", re.sub(r"/\*.*?\*/", "", TEXT, flags=re.S))
    parts = r'(?:"[^"]*"|[A-Z]+)'
    macros = {}

    def text(pieces):
        return "".join(p[1:-1] if p[0] == '"' else macros[p] for p in re.findall(parts, pieces))
    for name, body in re.findall(r"#define (\w+)\s+(.*)", joined):
        macros[name] = text(body)
    rows = re.findall(rf'LEMMA\((\w+), (\d), "[^"]*",\s*((?:{parts}\s*)+)\)', joined)
    return {(op, int(out)): text(body) for op, out, body in rows}


FORMULAS = formulas()
TOKEN = re.compile(r"\s*(:=|[\d.]+|\w+|.)")


class Reader:
    """A formula at an index; args: {parameter: tensor, number, list, text or None}."""

    def __init__(self, formula, args, at):
        self.args, self.at, self.names = args, list(at), {}
        *defined, self.body = formula.split(";")
        self.defined = {k.strip(): v for k, v in (d.split(":=") for d in defined)}
        first = next(v for v in args.values() if torch.is_tensor(v))
        if "keepdim" in args and not args["keepdim"]:
            gone = [d % first.dim() for d in self.dims("dim")]
            at = iter(at)
            self.at = [0 if i in gone else next(at) for i in range(first.dim())]
        self.first = first

    def dims(self, name):
        if name == "spatial":
            return range(2, self.first.dim())
        d = self.args[name]
        return range(-len(d), 0) if name == "normalized_shape" else [d] if isinstance(d, int) else d

    def value(self, text):
        before = self.__dict__.get("tokens"), self.__dict__.get("k")
        self.tokens, self.k = TOKEN.findall(text.strip()), 0
        v = self.expression()
        assert self.k == len(self.tokens), self.tokens[self.k:]
        self.tokens, self.k = before
        return v

    def peek(self):
        return self.tokens[self.k] if self.k < len(self.tokens) else ""

    def take(self, token):
        found = self.peek() == token
        self.k += found
        return found

    def next(self):
        self.k += 1
        return self.tokens[self.k - 1]

    def expression(self):
        v = self.product()
        while self.peek() in ("+", "-"):
            sign = 1 if self.next() == "+" else -1
            w = self.product()
            v = v if w is None else sign * w if v is None else v + sign * w
        return v

    def product(self):
        v = self.factor()
        while self.peek() in ("*", "/"):
            divides = self.next() == "/"
            w = self.factor()
            w = w if w is None or not divides else 1 / w if w else math.inf
            v = v if w is None else w if v is None else 0.0 if 0 in (v, w) else v * w
        return v

    def factor(self):
        minus, v = self.take("-"), None
        v = self.primary()
        if self.take("^"):
            v = v ** self.factor()
        return -v if minus and v is not None else v

    def axis(self):
        minus = -1 if self.take("-") else 1
        token = self.next()
        return minus * int(token) if token.isdigit() else self.args[token]

    def primary(self):
        token = self.next()
        if token == "(":
            v = self.expression()
            assert self.take(")")
            return v
        if token == "@":
            return self.at[self.axis()]
        if token[0].isdigit():
            return float(token)
        if token in ("lowest", "highest"):
            limits = torch.finfo(self.args["result"].dtype)
            return limits.min if token == "lowest" else limits.max
        if token in self.names:
            return self.names[token]
        if token in self.defined:
            return self.value(self.defined[token])
        if token in self.args:
            return self.operand(self.args[token])
        assert self.take("("), token
        v = getattr(self, "do_" + token)()
        assert self.take(")"), self.tokens[self.k:]
        return v

    def operand(self, x):
        self.take("?")
        tensor = torch.is_tensor(x)
        at = self.at[len(self.at) - x.dim():] if tensor and x.dim() <= len(self.at) else \
            [0] * (x.dim() if tensor else 0)
        if self.take("("):
            if self.take("..."):
                at = self.at[:x.dim()]
            else:
                at = [self.expression()]
                while self.take(","):
                    at.append(self.expression())
            assert self.take(")")
        elif self.take("["):
            while not self.take("]"):
                d = self.axis()
                assert self.take(":")
                v = self.expression()
                self.take(",")
                if tensor and -x.dim() <= d < x.dim():
                    at[d] = v
        if not tensor:
            return x
        return x[tuple(0 if n == 1 else int(i) for i, n in zip(at, x.shape))].item()

    def again(self, body):
        """The same tokens for each name or index that body() gives."""
        start, values = self.k, []
        for _ in body():
            self.k = start
            values.append(self.expression())
        return values

    def do_sum(self, how=sum):
        name, kind = self.next(), self.next()
        if kind == "<":
            n = int(self.expression())
            assert self.take(",")
            return how(self.again(lambda: (self.names.__setitem__(name, i) for i in range(n))))
        before, dims = list(self.at), list(self.dims(name))

        def places():
            for index in itertools.product(*(range(self.first.shape[d]) for d in dims)):
                for d, i in zip(dims, index):
                    self.at[d] = i
                yield
        values = self.again(places)
        self.at = before
        return how(values)

    def do_mean(self):
        return self.do_sum(lambda values: sum(values) / len(values))

    def do_max(self):
        return self.do_sum(max)

    def do_if(self):
        yes, values = self.expression(), []
        while self.take(","):
            start, at = self.k, list(self.at)
            try:
                values.append(self.expression())
            except (AssertionError, AttributeError, TypeError, KeyError):  # of the branch that is not taken
                depth, self.k, self.at = 0, start, at
                while depth or self.peek() not in (",", ")"):
                    depth += {"(": 1, ")": -1}.get(self.next(), 0)
                values.append(None)
        return values[0] if yes else values[1] if len(values) > 1 else None

    def about(self):
        name = self.next()
        return self.args["result"] if name == "result" else self.args[name]

    def do_given(self):
        return self.about() is not None

    def do_truth(self):
        x = self.about()
        return x.dtype == torch.bool if torch.is_tensor(x) else x in (0, 1)

    def do_integer(self):
        x = self.about()
        return torch.is_tensor(x) and not x.is_floating_point() and x.dtype != torch.bool

    def do_is(self):
        x, _ = self.about(), self.next()
        return x == self.next()

    def do_size(self):
        x, _ = self.about(), self.next()
        return x.shape[self.axis()]

    def do_only(self):
        assert self.expression()

    def one(self, f):
        return f(self.expression())

    def two(self, f):
        a, _ = self.expression(), self.next()
        return f(a, self.expression())

    def do_exp(self): return self.one(math.exp)
    def do_log(self): return self.one(math.log)
    def do_tanh(self): return self.one(math.tanh)
    def do_abs(self): return self.one(abs)
    def do_erf(self): return self.one(math.erf)
    def do_whole(self): return self.one(lambda v: v)
    def do_floor(self): return self.one(math.floor)
    def do_trunc(self): return self.one(math.trunc)
    def do_nonneg(self): return self.one(lambda v: float(v >= 0))
    def do_mask(self): return self.one(lambda v: 0.0 if v else -math.inf)
    def do_same(self): return self.two(lambda a, b: float(a == b))
    def do_largest(self): return self.two(max)
    def do_fmod(self): return self.two(math.fmod)
    def do_index(self): return self.one(lambda v: float(isinstance(v, int)))
    def do_div(self): return self.two(lambda a, b: a // b)

    def do_exact(self):
        return self.two(lambda a, b: int(a / b))

    def do_where(self):
        c, _, a, _, b = self.expression(), self.next(), self.expression(), self.next(), self.expression()
        return a if c else b


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def cases():
    torch.manual_seed(5)
    x, y, t, u = rand(2, 3, 4), rand(3, 1), rand(2, 3, 4) > 0, rand(3, 4) > 0
    i, pos, w = torch.randint(0, 4, (2, 3, 2)), rand(2, 3, 4).abs() + 0.1, rand(4)
    a = torch.ops.aten
    q, k, v = rand(2, 4, 3, 2), rand(2, 2, 5, 2), rand(2, 2, 5, 3)
    scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2)

    def attend(s):
        return s.softmax(-1) @ v.repeat_interleave(2, 1)
    rule = dict(query=q, key=k, value=v, attn_mask=None, dropout_p=0, is_causal=0, scale=None, softcap=0, lower=None,
                upper=None)
    rows, cols = torch.arange(3)[:, None], torch.arange(5)
    shown = rand(3, 5) > -0.5
    shown[:, 0] = True
    hide = torch.zeros(3, 5, dtype=torch.float64).masked_fill(~shown, -math.inf)
    yield "scaled_dot_product_attention", rule, attend(scores * 2 ** -0.5)
    yield "scaled_dot_product_attention", {**rule, "is_causal": 1}, attend(
        (scores * 2 ** -0.5).masked_fill(cols > rows, -math.inf))
    yield "scaled_dot_product_attention", {**rule, "lower": -1, "upper": 1, "scale": 0.3}, attend(
        (scores * 0.3).masked_fill((cols > rows + 1) | (cols < rows - 1), -math.inf))
    yield "scaled_dot_product_attention", {**rule, "attn_mask": shown, "softcap": 1.5}, attend(
        1.5 * torch.tanh(scores * 2 ** -0.5 / 1.5) + hide)
    bias = rand(3, 5)
    yield "scaled_dot_product_attention", {**rule, "attn_mask": bias}, attend(scores * 2 ** -0.5 + bias)
    yield from slopes(rule, q, k, v)
    for op, f in {"neg": a.neg, "square": a.square, "exp": a.exp, "exp2": a.exp2, "sigmoid": a.sigmoid, "silu": a.silu,
                  "log_sigmoid": a.log_sigmoid,
                  "relu": a.relu, "reciprocal": a.reciprocal, "detach": a.detach}.items():
        yield op, dict(self=x), f(x)
    yield "sqrt", dict(self=pos), pos.sqrt()
    yield "rsqrt", dict(self=pos), pos.rsqrt()
    yield "pow_Tensor_Tensor", dict(self=x, exponent=3), x ** 3
    for low, high in ((-0.5, 0.25), (-0.5, None), (None, 0.25), (0.5, -0.5)):
        yield "clamp", dict(self=x, min=low, max=high), x.clamp(low, high)
    yield "hardtanh", dict(self=x, min_val=-0.5, max_val=0.75), torch.nn.functional.hardtanh(x, -0.5, 0.75)
    yield "gelu", dict(self=x, approximate="none"), torch.nn.functional.gelu(x)
    yield "gelu", dict(self=x, approximate="tanh"), torch.nn.functional.gelu(x, approximate="tanh")
    yield "add_Tensor", dict(self=x, other=y, alpha=0.5), x + 0.5 * y
    yield "add_Tensor", dict(self=t, other=u, alpha=1), t + u
    yield "sub_Tensor", dict(self=x, other=y, alpha=2), x - 2 * y
    yield "mul_Tensor", dict(self=x, other=y), x * y
    yield "div_Tensor", dict(self=x, other=y), x / y
    yield "div_Tensor_mode", dict(self=torch.tensor([-7, -6, 5, 9]), other=3, rounding_mode="floor"), torch.tensor(
        [-3, -2, 1, 3])
    yield "div_Tensor_mode", dict(self=torch.tensor([-6, 5, 9]), other=3, rounding_mode="trunc"), torch.tensor(
        [-2, 1, 3])
    yield "fmod_Tensor", dict(self=3 * x, other=0.7), torch.fmod(3 * x, 0.7)
    yield "fmod_Tensor", dict(self=torch.tensor([7, 5, 9]), other=3), torch.tensor([1, 2, 0])
    yield "floor", dict(self=3 * x), torch.floor(3 * x)
    yield "logical_xor", dict(self=t, other=u), a.logical_xor(t, u)
    for mode in ("floor", "trunc"):
        yield "div_Tensor_mode", dict(self=3 * x, other=0.7, rounding_mode=mode), torch.div(
            3 * x, 0.7, rounding_mode=mode)
    yield "remainder_Tensor", dict(self=3 * x, other=-0.7), torch.remainder(3 * x, -0.7)
    yield "remainder_Tensor", dict(self=3 * x, other=0.7), torch.remainder(3 * x, 0.7)
    yield "remainder_Tensor", dict(self=torch.tensor([-7, 5, 9]), other=3), torch.tensor([2, 2, 0])
    yield "matmul", dict(self=rand(1, 3, 4), other=w[:, None].expand(2, 4, 2)), None
    yield "linear", dict(input=x, weight=rand(5, 4), bias=rand(5)), None
    yield "softmax_int", dict(self=x, dim=1), x.softmax(1)
    yield "safe_softmax", dict(self=x, dim=-1), x.softmax(-1)
    yield "log_softmax_int", dict(self=x, dim=-1), x.log_softmax(-1)
    yield "sum_dim_IntList", dict(self=x, dim=[0, -1], keepdim=0), x.sum((0, -1))
    for order in (1, 2, 2.0):
        yield "linalg_vector_norm", dict(self=x, ord=order, dim=[0, -1], keepdim=0), torch.linalg.vector_norm(
            x, order, (0, -1))
        yield "linalg_vector_norm", dict(self=x, ord=order, dim=[1], keepdim=1), torch.linalg.vector_norm(
            x, order, 1, keepdim=True)
    yield "mean_dim", dict(self=x, dim=[1], keepdim=1), x.mean(1, keepdim=True)
    yield "amax", dict(self=x, dim=[-1], keepdim=0), x.amax(-1)
    yield "logsumexp", dict(self=x, dim=[-1], keepdim=1), x.logsumexp(-1, keepdim=True)
    yield "logsumexp", dict(self=x, dim=[-1], keepdim=0), x.logsumexp(-1)
    yield "logaddexp", dict(self=x, other=y), torch.logaddexp(x, y)
    yield "eye_m", dict(n=3, m=5, self=torch.empty(3, 5)), torch.eye(3, 5)
    yield "max_dim", dict(self=x, dim=1, keepdim=1), x.max(1, keepdim=True).values
    yield "amin", dict(self=x, dim=[0, -1], keepdim=0), x.amin((0, -1))
    yield "min_dim", dict(self=x, dim=1, keepdim=0), x.min(1).values
    yield "any_dim", dict(self=t, dim=1, keepdim=0), t.any(1)
    yield "all_dim", dict(self=t | (x > -1), dim=1, keepdim=0), (t | (x > -1)).all(1)
    for correction in (None, 0, 2):
        yield "var_correction", dict(self=x, dim=[1, 2], correction=correction, keepdim=0), x.var(
            (1, 2), correction=1 if correction is None else correction)
        yield "std_correction", dict(self=x, dim=[1], correction=correction, keepdim=1), x.std(
            1, correction=1 if correction is None else correction, keepdim=True)
    yield "cumsum", dict(self=x, dim=1), x.cumsum(1)
    yield "layer_norm", dict(input=x, normalized_shape=[3, 4], weight=rand(3, 4), bias=None, eps=1e-3), None
    yield "rms_norm", dict(input=x, normalized_shape=[4], weight=w, eps=1e-3), None
    yield "batch_norm", dict(input=x, weight=rand(3), bias=rand(3), running_mean=rand(3), running_var=rand(3).abs(),
                             training=0, momentum=0.1, eps=1e-3), None
    grouped = dict(input=rand(2, 4, 3, 2), num_groups=2, weight=rand(4), bias=rand(4), eps=1e-3)
    yield "group_norm", grouped, torch.nn.functional.group_norm(*grouped.values())
    whole = torch.tensor([1, -2, 3])
    yield "pow_Tensor_Tensor", dict(self=whole, exponent=torch.tensor(2)), whole ** 2
    yield "maximum", dict(self=x, other=y), torch.maximum(x, y)
    yield "minimum", dict(self=x, other=y), torch.minimum(x, y)
    yield "isnan", dict(self=x), x.isnan()
    ends = torch.tensor([-math.inf, -1.0, -0.0, 2.0, math.inf], dtype=torch.float64)
    for low, high in ((None, None), (-3.0, None), (None, 4.0), (0.5, -0.5)):
        yield "nan_to_num", dict(self=ends, posinf=high, neginf=low), ends.nan_to_num(posinf=high, neginf=low)
    yield "where_self", dict(condition=t, self=x, other=y), torch.where(t, x, y)
    for op, f in {"logical_and": a.logical_and, "bitwise_and_Tensor": a.bitwise_and, "logical_or": a.logical_or,
                  "bitwise_or_Tensor": a.bitwise_or, "eq_Tensor": a.eq, "ne_Tensor": a.ne}.items():
        yield op, dict(self=t, other=u), f(t, u)
    yield "logical_not", dict(self=t), ~t
    yield "bitwise_not", dict(self=t), ~t
    near = (2 * x).round()
    for op in ("le", "lt", "ge", "gt", "eq", "ne"):
        yield f"{op}_Tensor", dict(self=near, other=(2 * y).round()), getattr(torch, op)(near, (2 * y).round())
    yield "tril", dict(self=x, diagonal=1), x.tril(1)
    yield "triu", dict(self=x, diagonal=-1), x.triu(-1)
    yield "embedding", dict(weight=rand(4, 5), indices=i), None
    yield "index_select", dict(self=x, dim=1, index=torch.tensor([2, 0])), x.index_select(1, torch.tensor([2, 0]))
    yield "gather", dict(self=x, dim=2, index=i), x.gather(2, i)
    yield "arange_start_step", dict(start=3, step=2, self=torch.empty(4)), torch.arange(3, 11, 2)
    yield "linspace", dict(start=-1.5, end=2, steps=6, self=torch.empty(6)), torch.linspace(
        -1.5, 2, 6, dtype=torch.float64)
    yield "linspace", dict(start=2, end=5, steps=1, self=torch.empty(1)), torch.tensor([2.0])
    yield "full", dict(fill_value=2.5, self=torch.empty(3)), torch.full((3,), 2.5)


def slopes(rule, q, k, v):
    """Attention's logarithms and gradients, by autograd: without a mask, and with a cap and a mask that broadcasts."""
    rule = {name: x for name, x in rule.items() if name != "dropout_p"}
    for mask, cap, causal in ((None, 0, 1), (rand(2, 1, 1, 5), 1.5, 0)):
        given = [t.clone().requires_grad_() for t in (q, k, v, *([] if mask is None else [mask]))]
        s = given[0] @ given[1].repeat_interleave(2, 1).transpose(-1, -2) * 0.3
        s = cap * torch.tanh(s / cap) if cap else s
        s = s if mask is None else s + given[3]
        s = s.masked_fill(torch.arange(5) > torch.arange(3)[:, None], -math.inf) if causal else s
        out, grad = s.softmax(-1) @ given[2].repeat_interleave(2, 1), rand(2, 4, 3, 3)
        args = {**rule, "attn_mask": mask, "is_causal": causal, "scale": 0.3, "softcap": cap}
        yield ("sdpa_lse", 0), args, out.detach()
        yield ("sdpa_lse", 1), args, s.logsumexp(-1).detach()
        args.update(grad_out=grad, output=out.detach(), logsumexp=s.logsumexp(-1).detach(), grad_mask=mask is not None)
        for number, slope in enumerate(torch.autograd.grad(out, given, grad)):
            yield ("sdpa_backward", number), args, slope


def of_torch(op, args):
    call = {"matmul": torch.matmul, "linear": torch.nn.functional.linear, "rms_norm": torch.nn.functional.rms_norm,
            "layer_norm": torch.nn.functional.layer_norm, "embedding": torch.nn.functional.embedding}.get(op)
    if op == "embedding":
        return call(args["indices"], args["weight"])
    if op == "batch_norm":
        return torch.nn.functional.batch_norm(args["input"], args["running_mean"], args["running_var"], args["weight"],
                                              args["bias"], False, 0.1, args["eps"])
    return call(*args.values())


CASES = [(op if isinstance(op, tuple) else (op, 0), args, want) for op, args, want in cases()]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{op[0]}-{k}" for k, (op, _, _) in enumerate(CASES)])
def test_formula(number):
    op, args, want = CASES[number]
    want = of_torch(op[0], args) if want is None else want
    args = {**args, "result": want}
    got = [Reader(FORMULAS[op], args, at) for at in itertools.product(*map(range, want.shape))]
    got = torch.tensor([r.value(r.body) for r in got], dtype=torch.float64).reshape(want.shape)
    assert torch.allclose(got, want.double(), rtol=1e-9, atol=1e-9), (got, want)


def test_every_formula_has_a_case():
    missing = set(FORMULAS) - {op for op, _, _ in CASES}
    assert {op for op in missing if FORMULAS[op].strip() not in PLACES} == {("convolution", 0)}, missing
