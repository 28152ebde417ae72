"""qkv.Tokenizer against the `tokenizers` package, files that it must refuse, and qkv.Sampler."""
import copy
import json
import random
import time

import numpy as np
import pytest

tokenizers = pytest.importorskip("tokenizers")
import lm  # noqa: E402
import qkv  # noqa: E402


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    made = {}
    for style in lm.STYLES:
        t = lm.tokenizer(style)
        t.save(str(folder / f"{style}.json"))
        made[style] = (t, folder / f"{style}.json")
    return made


@pytest.mark.parametrize("style", lm.STYLES)
def test_ids_and_text_are_those_of_tokenizers(files, style):
    want, path = files[style]
    got = qkv.Tokenizer(path)
    assert len(got) == want.get_vocab_size() == 606
    for text in lm.texts(400):
        ids = want.encode(text).ids
        assert got.encode(text).tolist() == ids, text
        assert got.decode(ids) == want.decode(ids), text
        assert got.decode(ids, skip_special=False) == want.decode(ids, skip_special_tokens=False), text
    assert got.find("<|endoftext|>") == want.token_to_id("<|endoftext|>") and got.find("nowhere") is None


def test_a_long_text_without_spaces(files):
    want, path = files["qwen"]
    text = "日本語のテキスト" * 5000 + " " * 20000 + "1" * 20000
    assert qkv.Tokenizer(path).encode(text).tolist() == want.encode(text).ids


def refused(tmp_path, content, code):
    path = tmp_path / "tokenizer.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(qkv.Error) as e:
        qkv.Tokenizer(path)
    assert e.value.code == code and str(path) in str(e.value), str(e.value)
    return str(e.value)


def test_other_kinds_are_named(files, tmp_path):
    whole = json.loads(files["gpt2"][1].read_text())

    def edited(**parts):
        return {**copy.deepcopy(whole), **parts}

    only = "supported is a byte-level BPE"
    for kind in ("WordPiece", "Unigram", "WordLevel"):
        said = refused(tmp_path, edited(model={"type": kind, "vocab": {"a": 0}}), 4)
        assert f"a tokenizer of kind {kind}" in said and only in said
    assert "SentencePiece" in refused(tmp_path, edited(model={**whole["model"], "byte_fallback": True}), 4)
    assert "without ByteLevel" in refused(tmp_path, edited(pre_tokenizer=None), 4)
    assert "'Metaspace': supported are" in refused(tmp_path, edited(pre_tokenizer={"type": "Metaspace"}), 4)
    assert "normalizer 'Lowercase'" in refused(tmp_path, edited(normalizer={"type": "Lowercase"}), 4)
    assert "'BertProcessing'" in refused(tmp_path, edited(post_processor={"type": "BertProcessing"}), 4)
    assert "'(a' is not understood at 2" in refused(tmp_path, edited(pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"}), 4)
    assert "MergedWithNext" in refused(tmp_path, edited(pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "a"}, "behavior": "MergedWithNext"}), 4)
    assert "no 'model' in it" in refused(tmp_path, "{}", 3)
    assert "is not in vocab" in refused(tmp_path, edited(model={**whole["model"], "merges": ["a zzzz"]}), 3)
    assert "is not two tokens" in refused(tmp_path, edited(model={**whole["model"], "merges": ["ab"]}), 3)
    assert "its id is not" in refused(tmp_path, edited(model={**whole["model"], "vocab": {"a": -1}}), 3)
    assert "token 'b': its id is 9999999, at most 2097152 are read" in refused(tmp_path, edited(
        model={"type": "BPE", "vocab": {"a": 0, "b": 9999999}, "merges": []}, added_tokens=[]), 5)
    with pytest.raises(qkv.Error, match="No such file"):
        qkv.Tokenizer(tmp_path / "none.json")


def test_an_expression_that_tries_too_much_is_stopped(files, tmp_path):
    whole = json.loads(files["gpt2"][1].read_text())
    whole["pre_tokenizer"]["use_regex"] = False
    slow = {"type": "Split", "pattern": {"Regex": r"(a+)+$"}, "behavior": "Isolated"}
    whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [slow, whole["pre_tokenizer"]]}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(qkv.Error, match="tries too much") as e:
        qkv.Tokenizer(path).encode("a" * 60 + "b")
    assert e.value.code == 5


def test_expressions_share_what_they_may_try_in_a_text(files, tmp_path):
    whole = json.loads(files["gpt2"][1].read_text())
    whole["pre_tokenizer"]["use_regex"] = False
    split = {"type": "Split", "pattern": {"Regex": r"(a|b)*\d|a|b"}, "behavior": "Isolated"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**whole, "pre_tokenizer": {
        "type": "Sequence", "pretokenizers": [split, whole["pre_tokenizer"]]}}))
    tokenizer, begun = qkv.Tokenizer(path), time.process_time()
    assert len(tokenizer.encode("ab" * 50)) == 100
    with pytest.raises(qkv.Error, match="tries too much"):  # each letter of it looks at all that follow
        tokenizer.encode("ab" * 10000)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("pattern", [r"(?!a*a*a*b)a", r"(?!a*b)a", r"a*[bc]", r"(?!a{9999}b)a", r"(?<=a{9999})b|a",
                                     "|".join(["a{60000}"] * 50) + "|a", r"(?=(a*))(?!\1b)a", r"(?:a(?!.*b))*?a(?=c)"])
def test_work_over_long_texts_is_bounded(files, tmp_path, pattern):
    """Each letter looks at all that follow, with few tries: what is looked at counts."""
    whole = json.loads(files["gpt2"][1].read_text())
    whole["pre_tokenizer"]["use_regex"] = False
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**whole, "pre_tokenizer": {
        "type": "Sequence", "pretokenizers": [split, whole["pre_tokenizer"]]}}))
    tokenizer, begun = qkv.Tokenizer(path), time.process_time()
    assert len(tokenizer.encode("a" * 50)) <= 50
    with pytest.raises(qkv.Error, match="tries too much") as e:
        tokenizer.encode("a" * 59999)
    assert e.value.code == 5 and time.process_time() - begun < 2


def test_added_tokens_that_begin_alike(files, tmp_path):
    """The longest counts, and of the same ones the first; 1,500 that go on for a while take no time."""
    rng = random.Random(3)
    whole = json.loads(files["gpt2"][1].read_text())
    path, known = tmp_path / "tokenizer.json", {t["content"] for t in whole["added_tokens"]}
    for _ in range(5):
        some = {"".join(rng.choices("ab<", k=rng.randint(1, 6))) for _ in range(40)} - known
        want = tokenizers.Tokenizer.from_file(str(files["gpt2"][1]))
        want.add_tokens([tokenizers.AddedToken(t, normalized=False) for t in sorted(some, key=lambda t: rng.random())])
        want.save(str(path))
        got = qkv.Tokenizer(path)
        for _ in range(100):
            text = "".join(rng.choices("ab< c", k=rng.randint(0, 40)))
            assert got.encode(text).tolist() == want.encode(text).ids, text
    first = max(t["id"] for t in whole["added_tokens"]) + 1000
    many = [{"id": first + k, "content": "z" * k + "x", "special": True} for k in range(1, 1501)]
    path.write_text(json.dumps({**whole, "added_tokens": [*whole["added_tokens"], *many]}))
    begun = time.process_time()
    ids = qkv.Tokenizer(path).encode("z" * 60000 + "x " + "zx").tolist()
    assert ids[-1] == first + 1 and first + 1500 in ids and time.process_time() - begun < 2


def test_members_of_other_kinds_are_refused(files, tmp_path):
    whole = json.loads(files["gpt2"][1].read_text())
    for parts in ({"normalizer": {"type": "Sequence", "normalizers": {}}},
                  {"post_processor": {"type": "Sequence", "processors": {}}}):
        refused(tmp_path, {**whole, **parts}, 4)
    steps = [{"type": "ByteLevel", "use_regex": "no"}, {"type": "ByteLevel", "add_prefix_space": 1},
             {"type": "Digits", "individual_digits": []}, {"type": "Sequence", "pretokenizers": {}}]
    for step in steps:
        assert "expected" in refused(tmp_path, {**whole, "pre_tokenizer": step}, 3)
    for key in ("special", "single_word", "lstrip", "rstrip", "normalized"):
        said = refused(tmp_path, {**whole, "added_tokens": [{"id": 0, "content": "a", key: "true"}]}, 3)
        assert f"added_tokens 0: field '{key}': found string, expected a truth value" in said
    for key in ("byte_fallback", "fuse_unk", "ignore_merges"):
        assert f"'{key}'" in refused(tmp_path, {**whole, "model": {**whole["model"], key: 1}}, 3)


def test_damaged_files_are_refused_or_read(files, tmp_path):
    whole, path, r = files["llama3"][1].read_bytes(), tmp_path / "tokenizer.json", random.Random(0)
    refusals = 0
    for n in range(300):
        data = bytearray(whole)
        if n % 3 == 0:
            data = data[:r.randrange(len(data))]
        for _ in range(r.randrange(1, 4)):
            if data:
                data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        path.write_bytes(data)
        try:
            t = qkv.Tokenizer(path)
        except qkv.Error as e:
            assert e.code in (3, 4, 5) and str(e)
            refusals += 1
            continue
        for text in ("", "The quick fox's 123 日本 <|begin|>"):
            ids = t.encode(text)
            t.decode(i for i in ids if 0 <= i < len(t))
    assert refusals > 150


def test_text_that_cannot_be_encoded(files):
    t = qkv.Tokenizer(files["gpt2"][1])
    with pytest.raises(qkv.Error, match="NUL"):
        t.encode("a\0b")
    with pytest.raises(qkv.Error, match="no such id"):
        t.decode([len(t)])


def test_sampling():
    logits = np.array([0.0, 1.0, 3.0, np.nan, 2.0, -np.inf, 3.0], np.float32)
    assert qkv.Sampler()(logits) == 2  # of equal ones the first
    draws = [qkv.Sampler(1.0, seed=s)(logits) for s in range(4000)]
    share = np.exp(np.nan_to_num(logits, nan=-np.inf)) / np.nansum(np.exp(logits))
    assert np.abs(np.bincount(draws, minlength=7) / 4000 - share).max() < 0.03
    sampler = qkv.Sampler(0.7, top_k=3, seed=1)
    assert {sampler(logits) for _ in range(300)} == {2, 4, 6}
    sampler = qkv.Sampler(1.0, top_p=0.5, seed=1)
    assert {sampler(logits) for _ in range(300)} == {2, 6}
    again = [qkv.Sampler(1.3, seed=7) for _ in range(2)]
    assert [again[0](logits) for _ in range(50)] == [again[1](logits) for _ in range(50)]
    for wrong in (qkv.Sampler(-1.0), qkv.Sampler(float("nan"))):
        with pytest.raises(qkv.Error, match="must not be negative"):
            wrong(logits)
    with pytest.raises(qkv.Error, match="none of the 2 logits is a number"):
        qkv.Sampler()(np.full(2, np.nan))
