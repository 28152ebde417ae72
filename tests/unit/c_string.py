"""C literals for the tables that make_bpe.py and make_wordpiece.py write."""


def c_string(s):
    """An escape ends where its string ends, so each is one of its own."""
    out = '"'
    for b in s.encode():
        ch = chr(b)
        out += f"\\{ch}" if ch in '"\\' else ch if 32 <= b < 127 else f"\\{b:03o}"
    return (out + '"').replace("??", '?""?')
