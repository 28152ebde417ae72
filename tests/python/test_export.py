"""What qkv.export says: only conditions that declared sizes can meet, and what to do about a cache in the output."""
import pytest

torch = pytest.importorskip("torch")
import qkv  # noqa: E402

Dim = torch.export.Dim


class Groups(torch.nn.Module):
    """Rows in groups of 8. The program has the conditions 8*batch // 8 != 8*batch and 8*batch // 8 != 1."""

    def forward(self, x):
        return x.unflatten(0, (-1, 8)).mean(1)


@pytest.mark.parametrize("batch, named", [
    (Dim("batch"), ["(x.size(0) // 8) == 1"]),
    (Dim("batch", min=2, max=9), [])])
def test_narrowed_names_what_can_hold(batch, named, tmp_path):
    report = qkv.export(Groups(), (torch.randn(16, 3),), path=tmp_path / "m.pt2", dynamic_shapes=({0: 8 * batch},))
    assert report.narrowed == [f"PyTorch refuses {n}; qkv runs such sizes, since the condition is about strides alone"
                               for n in named]


def test_a_cache_in_the_output_names_use_cache(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=32, bos_token_id=0, eos_token_id=0))
    ids = torch.randint(0, 50, (2, 6))
    with pytest.raises(qkv.Error) as e:
        qkv.export(model, (ids,), path=tmp_path / "m.pt2")
    assert str(e.value) == ("torch.export refuses: the module returns a DynamicCache, which an exported program "
                            "cannot: pass kwargs={'use_cache': False}, with which it keeps no keys and values for a "
                            "next call")
    assert len(qkv.export(model, (ids,), {"use_cache": False}, path=tmp_path / "m.pt2").differences) == 1
    past = model(ids).past_key_values
    for write in (lambda f: qkv.export(model, (ids,), {"past_key_values": past}, path=f),
                  lambda f: qkv.trace(model, (ids,), f, {"past_key_values": past})):
        with pytest.raises(qkv.Error) as e:
            write(tmp_path / "m")
        assert str(e.value).startswith("torch.export refuses: input 'past_key_values' is of class DynamicCache, which "
                                       "torch.export does not take: call transformers.integrations.executorch.register")


class Past:
    """Keys and values, as a class that pytree knows."""

    def __init__(self, keys, values):
        self.keys, self.values = keys, values


torch.utils._pytree.register_pytree_node(
    Past, lambda p: ([p.keys, p.values], None), lambda parts, _: Past(*parts), serialized_type_name="test_export.Past",
    flatten_with_keys_fn=lambda p: ([(torch.utils._pytree.GetAttrKey(n), getattr(p, n)) for n in ("keys", "values")],
                                    None))


class Remembers(torch.nn.Module):
    def forward(self, x, past, scale=1.0):
        past = Past(torch.cat([past.keys, x], 1), torch.cat([past.values, x * scale], 1))
        return torch.nn.functional.scaled_dot_product_attention(x, past.keys, past.values), past


def test_registered_classes_are_inputs_and_outputs(tmp_path):
    """Also arguments by name, in another order than the signature's."""
    x, past, size = torch.randn(2, 3, 4), Past(torch.randn(2, 5, 4), torch.randn(2, 5, 4)), torch.export.Dim("past")
    how = {"scale": 2.0, "past": past, "x": x}, {"x": None, "past": [{1: size}] * 2, "scale": None}
    report = qkv.export(Remembers(), (), how[0], how[1], tmp_path / "m.pt2")
    assert len(report.differences) == 3 and not report.narrowed
    assert qkv.Model(tmp_path / "m.pt2").inputs == ["x", "past_keys", "past_values"]
    count = qkv.trace(Remembers(), (), tmp_path / "nodes", *how)
    assert count == qkv.trace(tmp_path / "m.pt2", (), tmp_path / "n", how[0]) > 3


def test_another_class_in_the_input_is_named(tmp_path):
    class Other:
        pass

    with pytest.raises(qkv.Error, match="input 'past' is of class Other, which .*register_pytree_node"):
        qkv.export(Remembers(), (torch.randn(2, 3, 4), Other()), path=tmp_path / "m.pt2")


def test_a_block_mask_in_the_input_is_named(tmp_path):
    from torch.nn.attention.flex_attention import create_block_mask
    blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, 3, 3, device="cpu")
    with pytest.raises(qkv.Error, match="input 'past' is of class BlockMask, .*call create_block_mask in forward"):
        qkv.export(Remembers(), (torch.randn(2, 3, 4), blocks), path=tmp_path / "m.pt2")


def test_another_type_in_the_output_is_named(tmp_path):
    class Result:
        pass

    class Model(torch.nn.Module):
        def forward(self, x):
            return Result()

    with pytest.raises(qkv.Error, match="returns a Result, which an exported program cannot: return tensors, or lists"):
        qkv.export(Model(), (torch.randn(2),), path=tmp_path / "m.pt2")


class Twice(torch.nn.Module):
    def forward(self, x, **more):
        return x * 2


@pytest.mark.parametrize("module, args, kwargs, shapes, said", [
    (lambda x: x, 1, {}, None, "module: expected a torch.nn.Module, found function: call it in the forward"),
    (Twice, 1, {}, None, "module: expected a torch.nn.Module, found a class: make an object"),
    (Twice(), 0, {}, None, "args and kwargs do not fit Twice.forward.*: missing a required argument: 'x'"),
    (Twice(), 1, {}, "x", "dynamic_shapes: expected a dict or a tuple with an entry for each of x, found str"),
    (Twice(), 1, {}, ({}, {}), "dynamic_shapes: expected 1 entries, for x, found 2"),
    (Twice(), 1, {}, {"y": {0: Dim("n")}}, "dynamic_shapes: 'y' is not an argument: expected x"),
    (Twice(), 1, {}, {"x": {2: Dim("n")}}, r"dynamic_shapes\['x'\]: found axis 2, expected 0 to 1 for a tensor of 2"),
    (Twice(), 1, {}, {"x": {"n": Dim("n")}}, r"dynamic_shapes\['x'\]: found axis 'n', expected 0 to 1"),
    (Twice(), 1, {}, {"x": (Dim("n"),)}, r"dynamic_shapes\['x'\]: expected 2 entries, one for each axis, found 1"),
    (Twice(), [1], {}, {"x": 7}, "dynamic_shapes of 'x': expected a list or dict with an entry for each of 0, found 7"),
    (Twice(), [1], {}, {"x": [None, None]}, r"an entry for each of 0, found \[None, None\]"),
    (Twice(), 1, {}, {"x": Dim("n")}, r"dynamic_shapes\['x'\]: expected {axis: Dim}, found"),
    (Twice(), 1, {"y": 1}, {"x": None, "y": {0: Dim("n")}}, "torch.export takes no dynamic sizes of 'y', which forward "
                                                          r"collects in \*\*more: name it in the signature"),
    (Twice(), 1, {"y": 1}, {"x": None, "more": {"y": {0: Dim("n")}}}, r"collects in \*\*more: name it"),
])
def test_what_is_asked_for_wrongly(module, args, kwargs, shapes, said, tmp_path):
    x = torch.randn(3, 4)
    with pytest.raises(qkv.Error, match=said):
        args = ([x],) if args == [1] else (x,) * args
        qkv.export(module, args, {n: x for n in kwargs}, dynamic_shapes=shapes, path=tmp_path / "m.pt2")


class Rounds(torch.nn.Module):
    """float32 that was bf16 on the way, complex and whole numbers, float64"""
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = (x @ x.mT).float()
        return y, torch.fft.rfft(x), x.argmax(-1), x.double().exp()


def test_outputs_may_differ_as_what_they_come_from(tmp_path):
    path, x = str(tmp_path / "m.pt2"), torch.randn(3, 10)
    report = qkv.export(Rounds(), (x,), path=path)
    assert 2e-5 < report.max_rel < 2e-2, "what PyTorch rounds to bf16, the library rounds once"
    assert all(d["agrees"] for d in qkv.Model(path).verify([x], [y.numpy() for y in Rounds()(x)]).values())
    with pytest.raises(qkv.Error, match="allowed 1e-05"):
        qkv.export(Rounds(), (x,), path=path, tolerance=1e-5)


def slopes(self, a, b, h, i, j, documents):
    return torch.where(i >= j, a - self.slopes[h] * (i - j), -torch.inf)


@pytest.mark.parametrize("score, mask, heads", [
    (None, lambda self, b, h, i, j, documents: i >= j, 4),
    (slopes, None, 2),
    (lambda self, a, b, h, i, j, documents: 20 * torch.tanh(a / 20), lambda self, b, h, i, j, documents:
     (documents[b, i] == documents[b][j]) & (i >= j), 4),
    (lambda self, a, b, h, i, j, documents: a + self.table[0, h] * self.table[(i - j).clamp(0, 1), 3], None, 4)])
def test_flex_attention_is_exported_as_its_definition(score, mask, heads, tmp_path):
    """torch.export.save refuses the operator. Documents: tokens attend to those of theirs."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slopes, self.table = torch.nn.Buffer(torch.rand(4)), torch.nn.Parameter(torch.randn(2, 4))

        def forward(self, q, k, v, documents):
            see = mask and (lambda b, h, i, j: mask(self, b, h, i, j, documents))
            blocks = mask and create_block_mask(see, q.shape[0], None, q.shape[2], k.shape[2], device="cpu")
            y, more = flex_attention(q, k, v, block_mask=blocks, enable_gqa=True, return_aux=AuxRequest(lse=True),
                                     score_mod=score and (lambda a, b, h, i, j: score(self, a, b, h, i, j, documents)))
            return y, more.lse

    b, n = Dim("b", max=8), Dim("n", max=500)
    args = [torch.randn(2, h, 40, 16) for h in (4, heads, heads)] + [torch.arange(80).view(2, 40) // 15]
    shapes = [{0: b, 2: n}] * 3 + [{0: b, 1: n}]
    report = qkv.export(Model(), args, dynamic_shapes=shapes, path=tmp_path / "m.pt2")
    assert len(report.differences) == 3 and not report.narrowed
    found = qkv.Model(tmp_path / "m.pt2").rewrite(prove=True)
    assert (found["attentions_fused"], found["attentions_left"]) == (1, 0)


class ByWeights(torch.nn.Module):
    def forward(self, x, w, b):
        return torch.conv2d(x, w, b, padding=1), torch.conv_transpose2d(x, w.transpose(0, 1), stride=2)


def test_weights_of_convolutions_are_inputs(tmp_path):
    """As a hypernetwork's: how many channels is known when it runs."""
    auto = Dim.AUTO
    args = torch.randn(2, 4, 6, 7), torch.randn(6, 4, 3, 3), torch.randn(6)
    report = qkv.export(ByWeights(), args, path=tmp_path / "m.pt2",
                        dynamic_shapes=({0: auto, 1: auto}, {0: auto, 1: auto}, {0: auto}))
    assert len(report.differences) > 1 and not report.narrowed
