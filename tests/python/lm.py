"""What the tests of generation share: tokenizers that are trained here, texts, and small causal language models with
random weights."""
import random

CORPUS = ["The quick brown fox jumps over the lazy dog. It's they're we'll I'VE 12345 67 3.14\n\n  "
          "code() { x == y; }\r\n",
          "日本語のテキストと中文文本 한국어 텍스트 русский текст ελληνικά עברית العربية", "😀😃👩‍👩‍👧‍👦🏳️‍🌈 emoji",
          "café naïve Ångström ﬁ ½ ① Ⅷ", "def f(a, b):\n    return a + b\n"] * 5
DRAWN, SYLLABLES = random.Random(1), "ka lo mi ten ver sor ing able un re ma chi est do".split()
CORPUS += [" ".join("".join(DRAWN.choices(SYLLABLES, k=3)) for _ in range(400))]
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
PARTS = ["the", " the", "The", " quick", "fox", " fox ", "foxes", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "1",
         "12", "123", "1234567", " 42", "日本", "中文文本", "한국어", "русский", " ελλ", "😀", "👩‍👩‍👧", "🏳️‍🌈", "é", "e\u0301",
         "café", "cafe\u0301", "'s", "'LL", "'ve", "’s", "ſ", "<|endoftext|>", "<|im_start|>", " <mask> ", "<r>  ",
         "<tool>", "<|", "|>", "!", "...", "—", "==", "{}", "\u00a0", "\u3000", "\u200b", "\u2028", "½", "①", "Ⅷ", "ﬁ",
         "İ", "\x01", "\x7f", "a" * 40, "x" * 300, "\u0085", "ÿ", "\xad"]
STYLES = ("gpt2", "digits", "llama3", "qwen")


def tokenizer(style):
    """A byte-level BPE of 606 tokens, of the `tokenizers` package."""
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                            trainers)
    t = Tokenizer(models.BPE(ignore_merges=style == "llama3"))
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=style == "digits", use_regex=style in ("gpt2", "digits"))
    before = {"digits": pre_tokenizers.Digits(individual_digits=True),
              "llama3": pre_tokenizers.Split(Regex(SPLIT % "{1,3}"), "isolated"),
              "qwen": pre_tokenizers.Split(Regex(SPLIT % ""), "isolated")}.get(style)
    t.pre_tokenizer = pre_tokenizers.Sequence([before, bytes_]) if before else bytes_
    if style == "qwen":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>", "<|begin|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<mask>", lstrip=True),
                          AddedToken("<r>", rstrip=True)])
    t.add_tokens([AddedToken("fox", single_word=True), AddedToken("café", normalized=True), "<tool>"])
    if style == "llama3":
        start = t.token_to_id("<|begin|>")
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", start)])])
    return t


def texts(n):
    r = random.Random(0)
    return ["", " ", "\n"] + ["".join(r.choice(PARTS) for _ in range(r.randint(1, 12))) for _ in range(n)]


def config(kind, **more):
    import transformers as T
    size = {"vocab_size": 606, "max_position_embeddings": 256, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    wide, grouped = {"intermediate_size": 64}, {"intermediate_size": 64, "num_key_value_heads": 2}
    return {
        "gpt2": lambda: T.GPT2Config(vocab_size=606, n_positions=256, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
                                     eos_token_id=0),
        "llama": lambda: T.LlamaConfig(**{**size, **grouped, **more}),
        "qwen3": lambda: T.Qwen3Config(**size, **grouped, head_dim=16),
        "mistral": lambda: T.MistralConfig(**size, **grouped, sliding_window=8),
        "gemma": lambda: T.GemmaConfig(**size, **wide, num_key_value_heads=1, head_dim=8,
                                       tie_word_embeddings=False),
        "gemma2": lambda: T.Gemma2Config(**size, **wide, num_key_value_heads=2, head_dim=8, sliding_window=8,
                                         tie_word_embeddings=False),
        "opt": lambda: T.OPTConfig(**size, ffn_dim=64, word_embed_proj_dim=32),
        "gpt_neox": lambda: T.GPTNeoXConfig(**size, **wide),
    }[kind]()


KINDS = ("gpt2", "llama", "qwen3", "mistral", "gemma", "gemma2", "opt", "gpt_neox")


def model(kind):
    """Random weights that are large enough for texts to be varied."""
    import torch
    import transformers as T
    torch.manual_seed(0)
    m = T.AutoModelForCausalLM.from_config(config(kind)).eval()
    with torch.no_grad():
        for p in m.parameters():
            if p.dim() > 1:
                p.mul_(6)
    return m
