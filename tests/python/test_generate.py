"""Generation, token for token as transformers' generate: sessions with fed outputs, `qkv generate`, the recipe."""
import json
import os
import re
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
import lm  # noqa: E402
import qkv  # noqa: E402
from qkv.recipes import causal_lm  # noqa: E402

QKV, PROMPT, TOKENS = os.environ.get("QKV", "build/qkv"), "The quick brown fox's 日本", 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """KIND/ as save_pretrained and a tokenizer write it."""
    root = tmp_path_factory.mktemp("lm")
    t = lm.tokenizer("gpt2")
    for kind in lm.KINDS:
        lm.model(kind).save_pretrained(root / kind)
        t.save(str(root / kind / "tokenizer.json"))
    return root


@pytest.fixture(scope="module")
def made(folder):
    """The .pt2 of a kind and a cache, made when it is first asked for."""
    def path(kind, cache):
        out = folder / f"{kind}_{cache}" / "model.pt2"
        if not out.exists():
            out.parent.mkdir()
            length = ["--max-length", "100"] if cache == "static" else []
            assert causal_lm.main([str(folder / kind), "-o", str(out), "--cache", cache, *length]) == 0
        return out
    return path


def expected(folder, kind, ids, tokens=TOKENS):
    m = causal_lm.load(str(folder / kind))
    out = m.generate(torch.tensor(ids)[None], max_new_tokens=tokens, do_sample=False, eos_token_id=None,
                     pad_token_id=0)
    return out[0, len(ids):].tolist()


def command(*words, code=0):
    r = subprocess.run([QKV, "generate", *map(str, words)], capture_output=True, timeout=300)
    assert r.returncode == code, r.stderr.decode()
    return r.stdout, r.stderr.decode()


def generated(model, *more):
    return json.loads(command(model, "--prompt", PROMPT, "--max-tokens", TOKENS, "--eos", "none", "--json", *more)[0])


@pytest.mark.turns
@pytest.mark.parametrize("kind", lm.KINDS)
def test_command_as_transformers(folder, made, kind):
    for cache, name in (("past", "past"), ("static", "buffers")):
        got = generated(made(kind, cache))
        want = expected(folder, kind, got["prompt_tokens"])
        assert got["tokens"] == want and got["cache"] == name and got["finish"] == "max_tokens", cache
        assert len(got["feeds"]) == (4 if cache == "past" else 0)
    assert len(set(want)) > 3  # not one token again and again


def test_session_as_transformers(folder, made):
    ids = qkv.Tokenizer(folder / "llama" / "tokenizer.json").encode(PROMPT)
    with qkv.Model(made("llama", "past")).session() as s:
        for name in ("past_key_0", "past_value_0", "past_key_1", "past_value_1"):
            s.feed(name, from_=name.replace("past", "present"))
        for _ in range(2):
            got, x = [], ids[None]
            s.reset()
            while len(got) < 100:  # beyond the first memory of 64
                out = s.run({"input_ids": x})
                assert list(out) == ["logits"]
                got.append(int(out["logits"][0, -1].argmax()))
                x = np.array([[got[-1]]])
            assert got == expected(folder, "llama", ids.tolist(), 100)
            assert s.output("present_key_0").shape == (1, 2, len(ids) + 99, 8)
        assert s.stats()["plans"] >= 100


def test_batches_and_a_past_that_is_given(folder, made):
    """Two sequences at once; the past of the second prompt's first half is computed elsewhere."""
    m = causal_lm.load(str(folder / "qwen3"))
    ids = torch.randint(2, 500, (2, 9), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        past = m(input_ids=ids[:, :5], use_cache=True).past_key_values
        want = m.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)[:, 9:]
    feeds = {f"past_{kind}_{i}": getattr(layer, kind + "s") for i, layer in enumerate(past.layers)
             for kind in ("key", "value")}
    with qkv.Model(made("qwen3", "past")).session() as s:
        for name in feeds:
            s.feed(name, from_=name.replace("past", "present"))
        x, got = ids[:, 5:].numpy(), []
        for step in range(12):
            x = s.run({"input_ids": x, **(feeds if step == 0 else {})})["logits"][:, -1].argmax(-1)[:, None]
            got.append(x)
    assert np.array_equal(np.concatenate(got, 1), want.numpy())


def test_without_cache(folder, made):
    got = generated(made("gpt2", "none"))
    assert got["cache"] == "none" and got["tokens"] == expected(folder, "gpt2", got["prompt_tokens"])
    assert "every token runs on all tokens before it" in command(made("gpt2", "none"), "--prompt", "a", "--max-tokens",
                                                                  2)[1]


def test_feeds_by_hand_and_in_order(made, tmp_path):
    """Names that say nothing: outputs in order; --feed says it otherwise."""
    model = made("llama", "past")
    want = generated(model)
    pairs = [f"past_{kind}_{i}=output_{1 + 2 * i + k}" for i in range(2) for k, kind in enumerate(("key", "value"))]
    assert generated(model, *[x for p in pairs for x in ("--feed", p)])["tokens"] == want["tokens"]
    crossed = ["--feed", "past_key_0=present_value_0", "--feed", "past_value_0=present_key_0"]
    assert generated(model, *crossed)["tokens"] != want["tokens"]
    for wrong, words in (("past_key_0=logits", "input 'past_key_0' has rank 4 and output 'output_0' has rank 3"),
                         ("past_key_0=nothing", "no output is called 'nothing'"),
                         ("nothing=logits", "no input is called"),
                         ("past_key_0", "expected INPUT=OUTPUT")):
        assert words in command(model, "--prompt", "a", "--feed", wrong, code=2)[1]


def test_stop_strings_streaming_and_eos(folder, made):
    model = made("qwen3", "past")
    whole = generated(model)
    text, t = whole["text"], qkv.Tokenizer(folder / "qwen3" / "tokenizer.json")
    assert text == t.decode(whole["tokens"])
    plain, _ = command(model, "--prompt", PROMPT, "--max-tokens", TOKENS, "--eos", "none")
    streamed, figures = command(model, "--prompt", PROMPT, "--max-tokens", TOKENS, "--eos", "none", "--stream")
    assert streamed == plain == (text + "\n").encode()
    assert "tokens/s (max_tokens)" in figures
    stop = max(re.findall("[^\ufffd]{3,}", text), key=len)[:5]
    cut = generated(model, "--stop", stop)
    assert cut["text"] == text[:text.index(stop)] and cut["finish"] == "stop"
    out, _ = command(model, "--prompt", PROMPT, "--max-tokens", TOKENS, "--eos", "none", "--stream", "--stop", stop)
    assert stop.encode() not in out
    token = json.loads((folder / "qwen3" / "tokenizer.json").read_text())["model"]["vocab"]
    ninth = next(k for k, v in token.items() if v == whole["tokens"][9])
    at = whole["tokens"].index(whole["tokens"][9])
    ended = json.loads(command(model, "--prompt", PROMPT, "--eos", ninth, "--json")[0])
    assert ended["tokens"] == whole["tokens"][:at + 1] and ended["finish"] == "eos"


def test_drawn_tokens_are_the_samplers(folder, made):
    model = made("opt", "static")
    drawn = ["--temperature", "0.9", "--top-k", "20", "--top-p", "0.9", "--seed", "5"]
    got = generated(model, *drawn)
    assert got["tokens"] == generated(model, *drawn)["tokens"]
    assert got["tokens"] != generated(model, *drawn[:-1], "6")["tokens"]
    sampler, x, at = qkv.Sampler(0.9, 20, 0.9, seed=5), np.array([got["prompt_tokens"]]), 0
    with qkv.Model(model).session() as s:
        for token in got["tokens"]:
            logits = s.run({"input_ids": x, "cache_position": np.arange(at, at + x.shape[1])})["logits"]
            at += x.shape[1]
            assert sampler(logits[0, -1]) == token
            x = np.array([[token]])


def test_what_ends_early_or_is_refused(folder, made, tmp_path):
    static = made("gpt2", "static")  # 100 positions
    got, said = command(static, "--prompt", PROMPT, "--max-tokens", 200, "--eos", "none", "--json")
    got = json.loads(got)
    assert got["finish"] == "length" and len(got["prompt_tokens"]) + len(got["tokens"]) in (100, 101)
    assert "the model takes no more" in said
    model = made("llama", "past")
    assert "the prompt has no tokens" in command(model, "--prompt", "", code=2)[1]
    assert "--prompt TEXT is missing" in command(model, code=2)[1]
    alone = tmp_path / "model.pt2"
    alone.write_bytes(model.read_bytes())
    assert "name it with --tokenizer" in command(alone, "--prompt", "a", code=3)[1]
    small = json.loads((folder / "llama" / "tokenizer.json").read_text())
    small["added_tokens"], small["model"]["merges"] = [], []
    small["model"]["vocab"] = {k: v for k, v in small["model"]["vocab"].items() if v < 260}
    (tmp_path / "small.json").write_text(json.dumps(small))
    said = command(model, "--tokenizer", tmp_path / "small.json", "--prompt", PROMPT, code=2)[1]
    assert "but the tokenizer has no such token (its ids end at 259)" in said
    with qkv.Model(model).session() as s:
        with pytest.raises(qkv.Error, match="has rank 4 and output"):
            s.feed("past_key_0", from_="logits")


@pytest.mark.turns
def test_recipe(folder, tmp_path, capsys):
    config = tmp_path / "config"
    lm.config("llama").save_pretrained(config)
    out = tmp_path / "model.pt2"
    assert causal_lm.main([str(config), "-o", str(out)]) == 3  # no weights
    assert "not a folder of a causal language model" in capsys.readouterr().err
    assert causal_lm.main([str(config), "-o", str(out), "--random", "1", "--max-length", "32"]) == 0
    model = qkv.Model(out)
    assert model.inputs == ["input_ids", "past_key_0", "past_value_0", "past_key_1", "past_value_1"]
    assert model.outputs == ["logits", "present_key_0", "present_value_0", "present_key_1", "present_value_1"]
    assert sorted(v for v in model.symbols.values()) == [(0, 32), (1, 32), (1, 1024)]
    assert not (tmp_path / "tokenizer.json").exists()
