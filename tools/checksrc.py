#!/usr/bin/env python3
"""Refuses what the sources may not use, one row of BANNED each, and tests in Python that another one of the same name
hides, in a module or in a table of cases. Prints TAP, one line a row.

    tools/checksrc.py        not ok 1 - checksrc: strtod
                             # src/rewrite/sexpr.c:97 strtod: follows the program's locale; use parse_double ...
"""
import ast
import collections
import pathlib
import re

import tap

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCALE = "follows the program's locale; use {} of base/number.h"
NUMBER = ["src/base/number.c"]
STRING = r'"(?:\\.|[^"\\\n])*"'
STRING_WITH = r'(?<![\\\'])"(?:\\.|[^"\\\n])*?'  # a string up to what follows in the pattern
# the arguments of a call up to a conversion of a floating number in one of its strings
FLOAT = r'\s*\((?:[^;"]|' + STRING + r')*?"(?:\\.|[^"\\\n])*?(?<!%)%[-+#0*\d.]*[lL]?[aefgAEFG]'

# name, what the code may not have (comments are left out), folders, files that may, why and what to use instead
BANNED = [
    ("strtod", r"\b(?:strto(?:d|f|ld)|atof)\s*\(", ["src", "serve"], NUMBER, LOCALE.format("parse_double")),
    ("strtol", r"\b(?:strto(?:l|ll|imax)|ato(?:i|l|ll))\s*\(", ["src", "serve"], [],
     "use parse_int of base/number.h, which saturates"),
    ("printf of a double", r"\b(?:[fd]|sn?|as)?printf" + FLOAT, ["src", "serve"], NUMBER, LOCALE.format("text_printf")),
    ("vprintf", r"\bv(?:[fd]|sn?|as)?printf\s*\(", ["src", "serve"], NUMBER, LOCALE.format("text_vprintf")),
    ("scanf", r"\bv?[fs]?scanf\s*\(", ["src", "serve"], [],
     "use parse_int and parse_double of base/number.h; glibc's scanf is 100 KB of a static program"),
    ("libm", r"(?<![\w.>])(?:exp|exp2|expm1|log|log2|log10|log1p|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|asinh|"
     r"acosh|atanh|pow|erf|erfc|lgamma|hypot|sincos|tgamma|[jy][01])[fl]?\s*\(",
     ["src/" + room for room in ("base", "expr", "facts", "kernel", "lower", "run", "train")],
     ["src/base/elementary.h"], "gives other bits on other CPUs; use real_exp and the like of base/elementary.h"),
    ("ctype.h", r"<w?ctype\.h>", ["src", "serve"], [], LOCALE.format("is_alpha, is_digit, to_lower and the like")),
    ("strcasecmp", r"\bstrn?casecmp\s*\(|<strings\.h>", ["src", "serve"], [], LOCALE.format("same_word")),
    ("strcoll", r"\b(?:strcoll|strxfrm)\s*\(", ["src", "serve", "cli"], [], "sorts by the user's locale; use strcmp"),
    ("options of the command", STRING_WITH + r"--[a-z]", ["src", "vision", "serve"], [],
     "the library knows no command line: say what is wanted, and let hint() of cli/term.c name the option"),
    ("JSON as text", r'\\"[A-Za-z_]+\\"\s*:', ["src", "vision", "serve"], [],
     "use jw_put and the rest of base/jsonw.h"),
    ("setlocale", r"\bsetlocale\s*\(", ["src", "serve", "cli"], [],
     "the locale belongs to the program that embeds us; the command stays in the \"C\" locale, so that its printf "
     "writes points"),
]
COMMENT = re.compile(STRING + r"|/\*.*?\*/|//[^\n]*", re.S)


def code(path):
    """The file without comments; strings and line numbers stay."""
    text = path.read_text(errors="replace")
    return COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), text)


def hidden(path):
    """Functions, classes and constants of a module, and keys of a table, that are made again later, as path:line name:
    why."""
    tree, tables = ast.parse(path.read_text()), []
    made = collections.defaultdict(list)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [t.id for part in targets for t in ast.walk(part)
                 if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store) and t.id.isupper()]
        for name in [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else names:
            made[name].append(node.lineno)
    for node in ast.walk(tree):
        tables.append(collections.defaultdict(list))
        for key in node.keys if isinstance(node, ast.Dict) else []:
            if isinstance(key, ast.Constant):
                tables[-1][key.value].append(key.lineno)
    return [f"{path.relative_to(ROOT)}:{lines[0]} {name}: line {lines[1]} makes it again; give one another name"
            for names in (made, *tables) for name, lines in names.items() if len(lines) > 1 and name != "_"]


def main():
    paths = [p for folder in ("src", "vision", "serve", "cli") for p in sorted((ROOT / folder).rglob("*"))
             if p.suffix in (".c", ".h", ".def")]
    files = {str(p.relative_to(ROOT)): code(p) for p in paths}
    checks = []
    for name, pattern, folders, allowed, why in BANNED:
        found = [f"{f}:{text.count(chr(10), 0, m.start()) + 1} {m[0].split('(')[0]}: {why}"
                 for f, text in files.items() if f.startswith(tuple(d + "/" for d in folders)) and f not in allowed
                 for m in re.finditer(pattern, text)]
        checks.append((name, found))
    checks.append(("hidden tests", [line for p in sorted((ROOT / "tests/python").glob("*.py")) for line in hidden(p)]))
    tap.report("checksrc", checks)


if __name__ == "__main__":
    main()
