#!/usr/bin/env python3
"""Writes tests/unit/wordpiece_cases.h: a small vocabulary and what BertTokenizer makes of texts with it.

    .venv/bin/python tests/unit/make_wordpiece.py > tests/unit/wordpiece_cases.h    (transformers 5.23, tokenizers 0.23)
"""
import pathlib
import tempfile

import tokenizers
import transformers
from c_string import c_string

VOCAB = """[PAD] [UNK] [CLS] [SEP] [MASK] ! " # $ % & ' ( ) * + , - . / : ; < = > ? @ [ \\ ] ^ _ ` { | } ~ … “ ” „ – — ¡ ¿ 。 ， 、
a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 ##a ##b ##c ##d ##e ##f ##g ##h ##i ##j ##k ##l ##m ##n ##o ##p ##q ##r ##s
##t ##u ##v ##w ##x ##y ##z ##0 ##1 ##2 ##3 the red car un ##aff ##able affable ##affable run ##ning ##s naive cafe resume Red CAR É
café ##é 中 文 字 日 本 ##本 語 русский рус ##ский ελλας ελ ##λ ##α ##σ σ ς ##ς strasse straße ##ß ß æ ##æ ø ø ##ø đ ł İ ı ##ı 가 ᄀ ##ᅡ ##ᆨ
か ##き × ° € ™ ® € ﬁ ##ﬁ 😀 ##😀 aa ##aa ä ö ü ##ü ñ x2 10 ##10 don""".split()
VOCAB = list(dict.fromkeys(VOCAB))

TEXTS = [
    "", " ", "a", "the red car", "The RED Car.", "unaffable", "unaffables", "running runs", "  the\tred\ncar\r\n ",
    "the  car", "don't", "a.b,c!d?", "...", "(the [red] {car})", "a-b_c", "x=2*y+3", "$10 & 20%", "~`^|\\/<>@#\"';:",
    "qqq", "unq!", "the q\u2603q car", "na\u00efve caf\u00e9 r\u00e9sum\u00e9", "nai\u0308ve cafe\u0301",
    "CAF\u00c9 \u00c9", "Stra\u00dfe STRA\u1e9eE strasse", "\u00c6\u00d8 \u0110 \u0141",
    "\u0130I\u0131i", "\u039f\u0394\u039f\u03a3 \u0395\u039b\u039b\u0391\u03a3 \u03c2\u03c3",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0439 \u0451", "\u4e2d\u6587\u5b57", "a\u4e2db",
    "\u65e5\u672c\u8a9e\u3067\u3059", "\u304b\u304d \u304c", "\uac00 \uac01 \u1100\u1161",
    "\u4e2d\u3002\u6587\uff0c\u5b57\u3001", "\uf900\u4e2d", "\U00020000\u4e2d", "a\U00020000b", "a~b|c`d^e$f+g<h",
    "\u201ca\u201d \u2013 b\u2014c\u2026", "\u00bfa? \u00a1b!", "3\u00d72 \u00b0c \u20ac10 a\u2122",
    "a\u2260b", "a\u226fb \u226e", "\u037e \u1fef", "a\u00a0b\u2003c\u3000d", "a\u2028b\u2029c",
    "a\u200bb\ufeffc\u00add", "a\u0000b".replace("\0", ""), "a\x01b\x7fc\x85d", "a\ufffdb", "a\ue000b", "\u0301a",
    "a\u0301\u0302\u0303", "\u0301", "\u0378a", "a\u0378", "\U0001f600 a\U0001f600", "\ufb01 a\ufb01",
    "a\u0345b", "\u0958", "a" * 100, "a" * 101, "\u00e9" * 100, "e\u0301" * 100, "\u4e2d" * 101, "aa" * 50 + "b",
    "x" * 99 + "\u00ef", "the " * 3, "10 1010 x2", "A1B2", "un un- -un", "##a", "# #a", "the\u0020\u0020red",
    "\u1e69\u1e69", "\u01c5 \u01c4", "\u00df\u00df", "\u0149",
]
LENGTHS = [("the red car", 3), ("the red car", 4), ("the red car", 5), ("the red car", 2), ("unaffable car", 4),
           ("unaffable car", 5), ("a unaffableq b", 4), ("a unaffableq b", 5), ("", 2)]


def table(name, rows):
    print(f"static const struct {{\n    const char *text;\n    int room, n, "
          f"id[{max(len(i) for _, _, i in rows)}];\n}} {name}[] = {{")
    for text, room, ids in rows:
        print(f"    {{{c_string(text)}, {room}, {len(ids)}, {{{', '.join(map(str, ids))}}}}},")
    print("};")


def main():
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d) / "vocab.txt"
        path.write_text("\n".join(VOCAB) + "\n")
        lower = transformers.BertTokenizer(vocab=str(path), do_lower_case=True)
        cased = transformers.BertTokenizer(vocab=str(path), do_lower_case=False)
        print(f"/* Made by tests/unit/make_wordpiece.py with transformers {transformers.__version__}, tokenizers "
              f"{tokenizers.__version__}. */")
        print("static const char vocabulary[] =")
        for i in range(0, len(VOCAB), 12):
            print("    " + c_string("\n".join(VOCAB[i:i + 12]) + "\n").replace("\n", "\\n"))
        print("    ;")
        table("lower_cases", [(t, 128, lower(t)["input_ids"]) for t in TEXTS])
        table("cased_cases", [(t, 128, cased(t)["input_ids"]) for t in TEXTS])
        table("cut_cases", [(t, n, lower(t, truncation=True, max_length=n)["input_ids"]) for t, n in LENGTHS])


main()
