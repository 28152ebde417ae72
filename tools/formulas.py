#!/usr/bin/env python3
"""What follows from the formulas of the op table (the word FORMULA, src/op/ops.def). The build runs it.

    tools/formulas.py kernels OUT.h FILE.def...      #define FORMULA_frac x - (T)(F(trunc)(x))
                                                     the kernel, in the words of src/kernel/gen/pointwise_tmpl.h
    tools/formulas.py rules OUT.rules FILE.def...    (rule silu_by_hand (mul ?x (sigmoid ?x)) (silu ?x) (wide ?x))
                                                     the formula written out becomes the op, for rows with RULE

A call in a formula is the kernel of the row that it names, its operands put in.
"""
import re
import sys

KERNEL = re.compile(r"\b((?:FLOAT_|INT_)?(?:UNARY|BINARY)|COMPARE|TEST)\((\w+), ")
STRING = r'"(?:[^"\\]|\\.)*"'
OVERLOADS = ["self", "default", "Tensor", "Tensor_Tensor"]  # as src/grad/formula.c looks for them


def closing(text, at):
    """The offset of the parenthesis that closes the one before `at`."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at - 1


def joined(strings):
    return "".join(s[1:-1].replace('\\"', '"') for s in re.findall(STRING, strings))


class Row:
    """`params`: (type, name, default) of the schema; `kernel`: the first C formula; `rules`: RULE's words."""

    def __init__(self, id_, text):
        inside = joined(re.match(rf"(?:\s*{STRING})+", text).group()).split(") ->")[0]
        self.id = id_
        self.params = re.findall(r"(\w+)[^ ,]* (\w+)(?:=([^,]*))?", inside)
        formula = re.search(rf"\bFORMULA\(((?:\s*{STRING})+)\)", text)
        self.formula = tree(joined(formula.group(1))) if formula else None
        kernel = KERNEL.search(text)
        self.kernel = " ".join(text[kernel.end() : closing(text, kernel.end())].split()) if kernel else None
        self.truth = bool(kernel) and kernel.group(1) in ("COMPARE", "TEST")
        self.apart = bool(re.search(r"\bAPART\(", text))
        rules = re.finditer(rf"\bRULE\((\w+), ((?:\s*{STRING})+)\)", text)
        self.rules = [(m.group(1), joined(m.group(2))) for m in rules]


def table(files):
    rows = {}
    for file in files:
        text = re.sub(r"/\*.*?\*/", "", open(file).read(), flags=re.S)
        for text in re.split(r"\n(?=\w)", text):
            if m := re.match(r'\w+\((\w+), "([^"]+)",', text):
                rows[m.group(2)] = Row(m.group(1), text[m.end() :])
    return rows


# ------------------------------------------------------------------ trees: (operator, operand, ...), a name or a number


def tree(text):
    tokens = re.findall(r"[A-Za-z_]\w*|[\d.]+(?:e-?\d+)?|[-+*/(),]", text)
    assert "".join(tokens) == text.replace(" ", ""), text
    found = sum_(tokens)
    assert not tokens, text
    return found


def sum_(t):
    left = product(t)
    while t and t[0] in "+-":
        left = (t.pop(0), left, product(t))
    return left


def product(t):
    left = factor(t)
    while t and t[0] in "*/":
        left = (t.pop(0), left, factor(t))
    return left


def factor(t):
    head = t.pop(0)
    if head == "-":
        return ("neg", factor(t))
    if head == "(":
        inside = sum_(t)
        t.pop(0)
        return inside
    if not t or t[0] != "(":
        return head
    args = []
    while t.pop(0) != ")":
        args.append(sum_(t))
    return (head, *args)


def is_number(t):
    return isinstance(t, str) and t[0].isdigit()


# ------------------------------------------------------------------ kernels


def called(rows, name):
    return next(r for o in OVERLOADS if (r := rows.get(f"aten.{name}.{o}")))


def in_c(rows, t, env):
    """env: C for each name. What is given is in parentheses, a name, or a cast of one of both."""
    if is_number(t):
        return "(T)INFINITY" if t == "1e999" else f"(T){t}"
    if isinstance(t, str):
        return env[t]
    args = [in_c(rows, a, env) for a in t[1:]]
    if t[0] == "neg":
        return f"(-{args[0]})"
    if t[0] in "+-*/":
        return f"({args[0]} {t[0]} {args[1]})"
    if t[0] == "where":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    row = called(rows, t[0])
    if row.kernel == f"FORMULA_{row.id}":
        given = args + [f"(T){p[2]}" for p in row.params[len(args) :]]
        return in_c(rows, row.formula, {p[1]: a for p, a in zip(row.params, given)})
    names = {"x": 0, "a": 0, "b": 1, **{f"p[{k}]": k + 1 for k in range(3)}}
    body = re.sub(r"\b(?:[xab]\b|p\[\d\])", lambda m: args[names[m.group()]], row.kernel)
    return f"({body})" if row.truth else f"(T)({body})"


def kernels(rows):
    for row in rows.values():
        derived = row.kernel == f"FORMULA_{row.id}"
        if row.formula and row.kernel and derived == row.apart:
            sys.exit(f"{row.id}: a row with a formula has the kernel FORMULA_{row.id}, or the word APART: {row.kernel}")
        if not derived:
            continue
        tensors = [p[1] for p in row.params if p[0] == "Tensor"]
        env = dict(zip(tensors, "x" if len(tensors) == 1 else "ab"))
        env |= {p[1]: f"(T)p[{k - 1}]" for k, p in enumerate(row.params) if p[1] not in env}
        yield f"#define {row.kernel} {in_c(rows, row.formula, env)}"


# ------------------------------------------------------------------ rules

WORDS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def simple(t):
    """With x * 1 and x / 1 as x."""
    if isinstance(t, str):
        return t
    t = (t[0], *map(simple, t[1:]))
    return t[1] if t[0] in "*/" and t[2] == "1" else t


def bound(t, env):
    return env.get(t, t) if isinstance(t, str) else (t[0], *(bound(a, env) for a in t[1:]))


def parts(t):
    if not isinstance(t, str):
        yield t
        for a in t[1:]:
            yield from parts(a)


def pattern(t, seen, often):
    if isinstance(t, str):
        return t
    if t in seen:
        return "?z"
    seen.add(t) if t in often else None
    text = f"({WORDS.get(t[0], t[0])} {' '.join(pattern(a, seen, often) for a in t[1:])})"
    return f"(shared (= ?z {text}))" if t in often else text


def rules(rows):
    """The graft of a rule names the operands: (softplus ?x 1 ?t) has 1 in place of beta. A quotient by a number is
    also the product with its reciprocal. A part that is there twice is one value, which may have other users."""
    yield "; Made by tools/formulas.py of the rows with the word RULE (src/op).\n(phase recompose)"
    for row in rows.values():
        for name, rest in row.rules:
            graft, operands = re.match(r"(\(\w+ (.*?)\))", rest).groups()
            t = simple(bound(row.formula, dict(zip((p[1] for p in row.params), operands.split()))))
            often = {p for p in parts(t) if list(parts(t)).count(p) > 1}
            text = pattern(t, set(), often)
            if t[0] == "/" and is_number(t[2]):
                text = f"(any {text} (mul {pattern(t[1], set(), often)} ?part))"
                rest = f"{graft} (close (or ?part (/ 1 {t[2]})) {1 / float(t[2])!r} 1e-7){rest[len(graft):]}"
            yield f"(rule {name} {text} {rest})"


def main():
    what, out, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    lines = {"kernels": kernels, "rules": rules}[what](table(files))
    with open(out, "w") as f:
        f.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
