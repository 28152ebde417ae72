"""Ten small models with random weights, as authors write them, and comparison with eager PyTorch.

    model, inputs = MODELS[0]()         inputs: a tuple or a dict
    close(tensors(got), called(model, inputs))
"""
import torch
from parts import R, fn
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Decomposed: products, a mask, a softmax."""

    def __init__(self, width, heads, rotary=False):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.rotary:
            angle = torch.arange(n)[:, None] / 10 ** torch.arange(c // self.heads // 2)
            turn = torch.cat([angle, angle], -1)
            q, k = (t * turn.cos() + torch.cat([-t[..., t.shape[-1] // 2:], t[..., :t.shape[-1] // 2]], -1) * turn.sin()
                    for t in (q, k))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Windows(nn.Module):
    """Swin's: rolled, cut into windows of 4, attended, put together."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 2)

    def forward(self, x):
        b, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3)
        y = self.attention(y.reshape(-1, 16, c)).view(b, h // 4, w // 4, 4, 4, c)
        return x + torch.roll(y.transpose(2, 3).reshape(b, h, w, c), (2, 2), (1, 2))


class Gated(nn.Module):
    """Llama's layer: RMSNorm, rotary attention, a gated MLP."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.attention = nn.RMSNorm(width), nn.RMSNorm(width), Attention(width, 2, rotary=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        n = x.shape[1]
        x = x + self.attention(self.a(x), torch.ones(n, n, dtype=torch.bool).tril())
        gate, up = self.up(self.b(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def hugging_face(kind, **config):
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, kind.replace("Model", "Config"))(**config)).eval()


SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
IDS = torch.randint(0, 90, (2, 7), generator=torch.Generator().manual_seed(1))


def bert():
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    return hugging_face("BertModel", vocab_size=99, **SMALL), dict(input_ids=IDS, attention_mask=mask)


def vit():
    return hugging_face("ViTModel", image_size=16, patch_size=4, **SMALL), dict(pixel_values=R(2, 3, 16, 16))


def swin():
    return hugging_face("SwinModel", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2],
                        window_size=4), dict(pixel_values=R(1, 3, 32, 32))


def llama():
    return hugging_face("LlamaModel", vocab_size=99, num_key_value_heads=1, **SMALL), dict(input_ids=IDS,
                                                                                           use_cache=False)


def gpt2():
    return hugging_face("GPT2Model", vocab_size=99, n_embd=32, n_layer=2, n_head=2), dict(input_ids=IDS,
                                                                                          use_cache=False)


def distilbert():
    return hugging_face("DistilBertModel", vocab_size=99, dim=32, n_layers=2, n_heads=2, hidden_dim=64), dict(
        input_ids=IDS)


def encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), dict(src=R(2, 5, 32))


def by_hand():
    return nn.Sequential(*[Gated(16) for _ in range(2)]), (R(2, 6, 16),)


def windows():
    return nn.Sequential(*[Windows(16) for _ in range(2)]), (R(2, 8, 8, 16),)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4, bias=False), nn.BatchNorm2d(16), nn.GELU(), nn.Flatten(2), fn(
        lambda self, x: self.a(x.transpose(1, 2)), a=Attention(16, 2))), (R(2, 3, 16, 16),)


MODELS = [bert, vit, swin, llama, gpt2, distilbert, encoder, by_hand, windows, convolutions]


def tensors(x):
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def close(got, expected, share=2e-5):
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0, atol=share * max(float(b.detach().abs().max()), 1e-3), equal_nan=True)


def called(model, inputs):
    return tensors(model(*inputs) if isinstance(inputs, tuple) else model(**inputs))
