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


def test_another_type_in_the_output_is_named(tmp_path):
    class Result:
        pass

    class Model(torch.nn.Module):
        def forward(self, x):
            return Result()

    with pytest.raises(qkv.Error, match="returns a Result, which an exported program cannot: return tensors, or lists"):
        qkv.export(Model(), (torch.randn(2),), path=tmp_path / "m.pt2")
