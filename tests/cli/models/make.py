#!/usr/bin/env python3
"""Makes the models of the command's tests with torch, next to this file.
They are committed; run this only to change them.

quadrant.pt2    (N, 1, 8, 8) -> (N, 4): which quarter of a picture is brightest,
                scores are 10 x the mean of each quarter
rgb.pt2         (1, 3, 4, 6) -> itself: shows how a picture is read
words.pt2       (B, S) ids, mask, types -> (B, S, 8) and pooled (B, 8);
                each token has its own direction, scaled by its type
affine.pt2      (B, 4) -> relu(x @ w + b) * 2; affine2.pt2 is the same with one bias changed
two.pt2         a (B, 3) i64, b (B, 3) f32 -> a + b, a > b
complex.pt2     x (B, 4) -> (B, 2) complex numbers, 2 x its pairs
train.pt2       x (B, 4), target (B, 3) -> the mean squared error of affine.pt2's layer, and what it predicts;
                x asks for a gradient
static_*.pt2    (b, s, 4) with mask (b, s) -> attention with a causal mask that is a constant; at three sizes, without
                dynamic sizes; static_loop.pt2 has the same signature and other nodes, static_other.pt2 other weights
turns.pt2       x (B, 4) -> the last of its running sums and all of them, each of which is added or subtracted after a
                norm that is written out
static_table_*.pt2   x (b, s) -> x * a table of s numbers that follow no rule + 137 or 911, at two sizes
eager.pt2       (B, S, 8) and mask (B, S) -> (B, S, 8): attention of two heads spelled out, with decomposed softmax,
                norm and activation
left.pt2        the same with a second attention whose mask hides by -50, which keeps the keys in the softmax
sdpa.pt2        x (B, N, 24), pair (2, N, N) -> (B, N, 24): scaled_dot_product_attention of 3 axes, of heads of 12,
                with a mask of 3 axes, and of queries whose last axis is turned
ground.pt2      pictures (B, 3, 32, 32), ids (P, 16) -> logits, boxes, masks, presence, as SAM 3: what is "red",
                "green" or "blue" in the left and in the right half of a picture; with tokenizer and processor as
                extra files. bare.pt2 is the same without them
"""
import pathlib
import torch
from torch._higher_order_ops.scan import scan

HERE = pathlib.Path(__file__).resolve().parent
Dim = torch.export.Dim


class Quadrant(torch.nn.Module):
    def forward(self, image):
        n = image.shape[0]
        return image.reshape(n, 2, 4, 2, 4).mean((2, 4)).reshape(n, 4) * 10


class Same(torch.nn.Module):
    def forward(self, picture):
        return picture * 1.0


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.table.weight.data = torch.cat([torch.eye(8), 2 * torch.eye(8)])

    def forward(self, input_ids, attention_mask, token_type_ids):
        x = self.table(input_ids) * (1 + token_type_ids).unsqueeze(-1)
        m = attention_mask.unsqueeze(-1).float()
        return x, (x * m).sum(1) / m.sum(1)


class Affine(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.layer.weight.data = torch.arange(12.).reshape(3, 4) / 4
        self.layer.bias.data = torch.tensor([0., bias, -1.])

    def forward(self, x):
        return torch.relu(self.layer(x)) * 2


class Train(Affine):
    def __init__(self):
        super().__init__(1.0)
        self.layer.bias.requires_grad_(False)
        self.unused = torch.nn.Parameter(torch.ones(2))

    def forward(self, x, target):
        y = super().forward(x)
        return (y - target).square().mean(), y


class Complex(torch.nn.Module):
    def forward(self, x):
        return torch.view_as_complex(x.reshape(-1, 2, 2)) * 2


class Two(torch.nn.Module):
    def forward(self, a, b):
        return a + b, a > b


class Causal(torch.nn.Module):
    def __init__(self, slope=1.0):
        super().__init__()
        self.value = torch.nn.Linear(4, 4)
        self.value.weight.data = torch.arange(16.).reshape(4, 4) / 16
        self.value.bias.data = torch.tensor([slope, 0., 0., -1.])
        self.masks = {n: torch.triu(torch.full((n, n), -1e9), 1) for n in (3, 5, 8)}

    def forward(self, x, mask):
        b, s, e = x.shape
        q = x.view(b, s, 2, 2).transpose(1, 2)
        a = (q @ q.transpose(2, 3) + self.masks[s]).masked_fill(~mask.view(b, 1, 1, s), -1e9)
        return (a.softmax(-1) @ self.value(x).view(b, s, 2, 2).transpose(1, 2)).transpose(1, 2).reshape(b, s, e)


class Rows(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


class Heads(torch.nn.Module):
    def forward(self, x, mask=None):
        q = x.unflatten(-1, (2, 12)).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, mask).transpose(1, 2).flatten(2)


class Turned(torch.nn.Module):
    def forward(self, x):
        q = x.transpose(1, 2).contiguous().unflatten(1, (2, 12)).transpose(2, 3)
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, scale=0.3).transpose(1, 2).flatten(2)


class Kinds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Rows(), Heads(), Heads(), Turned()])

    def forward(self, x, pair):
        x = x + self.layers[0](x)
        x = x + self.layers[1](x)
        x = x + self.layers[2](x, pair)
        return x + self.layers[3](x)


MERGES = ["r e", "re d</w>", "g re", "gre e", "gree n</w>", "b l", "bl u", "blu e</w>"]


class Ground(torch.nn.Module):
    """A token's embedding is the colour that it names, nothing for all others."""
    def __init__(self):
        super().__init__()
        self.colour = torch.nn.Embedding(512 + len(MERGES) + 2, 3)
        self.colour.weight.data.zero_()
        for i, word in enumerate(("re d</w>", "gree n</w>", "blu e</w>")):
            self.colour.weight.data[512 + MERGES.index(word)] = torch.where(torch.arange(3) == i, 3., -2.)
        half = torch.zeros(2, 16, 16)
        half[0, :, 8:] = half[1, :, :8] = -20
        self.register_buffer("side", half)
        self.register_buffer("box", torch.tensor([[0.25, 0.5, 0.5, 1.], [0.75, 0.5, 0.5, 1.]]))

    def forward(self, patch_batch, token_ids):
        b, p = patch_batch.shape[0], token_ids.shape[0]
        colour = self.colour(token_ids).sum(1)
        seen = torch.einsum("bchw,pc->bphw", torch.nn.functional.avg_pool2d(patch_batch, 2), colour)
        masks = (seen.unsqueeze(2) + self.side - 1).reshape(b * p, 2, 16, 16)
        logits = masks.amax((2, 3))
        presence = (colour.abs().sum(1) - 3).unsqueeze(0).expand(b, p).reshape(b * p, 1)
        return logits.unsqueeze(-1), self.box + 0 * logits.unsqueeze(-1), masks, presence


class Eager(torch.nn.Module):
    def __init__(self, fills):
        super().__init__()
        self.fills = fills
        torch.manual_seed(0)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(8, 8) for _ in range(4))
        for p in self.parameters():
            p.data = p.data.mul(64).round().div(64)

    def attention(self, x, hide, fill):
        b, s, _ = x.shape
        q, k, v = (f(x).view(b, s, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = (q @ k.transpose(2, 3) / 2).masked_fill(hide, fill)
        if fill == float("-inf"):
            e = torch.exp(scores - scores.amax(-1, keepdim=True))
            p = e / e.sum(-1, keepdim=True)
        else:
            p = scores.softmax(-1)
        return self.out((p @ v).transpose(1, 2).reshape(b, s, 8))

    def forward(self, x, mask):
        hide = ~mask[:, None, None, :]
        for fill in self.fills:
            x = x + self.attention(x, hide, fill)
        return x * torch.sigmoid(x)


class Loop(torch.nn.Module):
    def forward(self, x, mask):
        for _ in range(x.shape[1]):
            x = x.relu() - 1
        return x * mask.unsqueeze(-1)


class Table(torch.nn.Module):
    """What no size explains: it is left, by node."""

    def forward(self, x):
        small = x.shape[1] == 3
        return x * torch.tensor([3., 1, 4] if small else [2., 7, 1, 8, 2]) + (137 if small else 911)


def save(name, module, args, dynamic, extra=None, keep=()):
    ep = torch.export.export(module.eval(), args, dynamic_shapes=dynamic)
    for gm in ep.graph_module.modules():
        if isinstance(gm, torch.fx.GraphModule):
            for n in gm.graph.nodes:
                for k in ["stack_trace", "nn_module_stack", "torch_fn", "from_node", "custom"]:
                    if k not in keep:
                        n.meta.pop(k, None)
    ep._example_inputs = None
    torch.export.save(ep, HERE / f"{name}.pt2", extra_files=extra)


class Turns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.arange(1.0, 5.0))

    def norm(self, x):
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def forward(self, x):
        def turn(h, x):
            h = torch.cond(x.sum() > 0, lambda h, x: h + self.norm(x), lambda h, x: h - self.norm(x), (h, x))
            return h, h * 2
        return scan(turn, torch.zeros(4), x)


def main():
    batch, seq = Dim("batch", min=1, max=64), Dim("seq", min=2, max=16)
    ids = torch.ones(3, 5, dtype=torch.int64)
    save("quadrant", Quadrant(), (torch.rand(3, 1, 8, 8),), {"image": {0: batch}})
    save("rgb", Same(), (torch.rand(1, 3, 4, 6),), None)
    bs = {0: batch, 1: seq}
    save("words", Words(), (ids, ids.clone(), ids.clone()),
         {"input_ids": bs, "attention_mask": bs, "token_type_ids": bs})
    save("affine", Affine(0.5), (torch.rand(3, 4),), {"x": {0: batch}})
    save("affine2", Affine(0.75), (torch.rand(3, 4),), {"x": {0: batch}})
    save("two", Two(), (torch.ones(3, 3, dtype=torch.int64), torch.rand(3, 3)), {"a": {0: batch}, "b": {0: batch}})
    save("complex", Complex(), (torch.rand(3, 4),), {"x": {0: batch}})
    save("train", Train(), (torch.rand(3, 4, requires_grad=True), torch.rand(3, 3)),
         {"x": {0: batch}, "target": {0: batch}})
    static = lambda n, s: (torch.rand(n, s, 4), torch.ones(n, s, dtype=torch.bool))
    for name, n, s in (("a", 2, 3), ("b", 3, 5), ("c", 4, 8)):
        save(f"static_{name}", Causal(), static(n, s), None)
    eager = (torch.rand(2, 3, 8), torch.ones(2, 3, dtype=torch.bool))
    save("eager", Eager([float("-inf")]), eager, {"x": bs, "mask": bs})
    save("left", Eager([float("-inf"), -50.0]), eager, {"x": bs, "mask": bs})
    save("static_loop", Loop(), static(3, 5), None)
    save("turns", Turns(), (torch.rand(3, 4),), {"x": {0: Dim("batch", min=2, max=64)}})
    for name, n, s in (("a", 2, 3), ("b", 4, 5)):
        save(f"static_table_{name}", Table(), (torch.rand(n, s),), None)
    save("static_other", Causal(2.0), static(3, 5), None)
    save("sdpa", Kinds(), (torch.rand(3, 5, 24), torch.rand(2, 5, 5)), {"x": bs, "pair": {1: seq, 2: seq}},
         keep=["nn_module_stack"])
    extra = {"qkv/tokenizer.bpe": "\n".join(MERGES) + "\n",
             "qkv/processor.json": '{"contract": "meta", "image": {"height": 32, "width": 32}, "text": {"length": '
                                   '16}, "score_threshold": 0.5}'}
    grounding = (torch.zeros(2, 3, 32, 32), torch.zeros(3, 16, dtype=torch.int64))
    for name, files in (("ground", extra), ("bare", None)):
        save(name, Ground(), grounding, {"patch_batch": {0: Dim("b", min=1)}, "token_ids": {0: Dim("p", min=1)}}, files)


if __name__ == "__main__":
    main()
