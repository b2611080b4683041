"""Laws of dropout: how many fall, that the mean stays, and that nothing else changes."""

from __future__ import annotations

import pytest
import torch

from regard.layers.dropout import Dropout


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_about_p_fall_and_the_others_grow_so_that_the_mean_stays(p, dtype):
    torch.manual_seed(7)
    x = torch.ones(1009, 503, dtype=dtype)
    out = Dropout(p)(x)
    assert (out.shape, out.dtype) == (x.shape, dtype)
    fallen = (out == 0).double().mean().item()
    assert fallen == pytest.approx(p, abs=1 / 256 + 0.003)
    assert fallen > 0
    kept = out[out != 0].unique()
    assert len(kept) == 1
    # each number's mean is 1: the share that is kept, rounded as it is, times the growth
    share = 1 - round(fallen * 256) / 256
    assert float(kept[0]) * share == pytest.approx(1, rel=0.01)


def test_every_place_falls_as_often_and_by_itself():
    torch.manual_seed(3)
    fallen = (Dropout(0.25)(torch.ones(20_000, 17)) == 0).double()  # 17: places do not line up with the bytes of a word
    assert fallen.mean(0) == pytest.approx(0.25, abs=0.015)
    together = torch.corrcoef(fallen.t()) - torch.eye(17, dtype=torch.float64)
    assert float(together.abs().max()) < 0.04


def test_what_falls_is_a_function_of_the_random_state_and_differs_from_call_to_call():
    dropout, x = Dropout(0.5), torch.randn(13, 11)
    torch.manual_seed(5)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(5)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


def test_the_gradient_is_what_each_number_was_multiplied_by():
    x = torch.randn(13, 11, dtype=torch.float64, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad * x, out)


def test_in_use_and_at_0_nothing_changes_and_nothing_is_sampled():
    x = torch.randn(13, 11)
    before = torch.get_rng_state()
    assert Dropout(0.0)(x) is x or torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_at_1_all_fall_and_nothing_is_an_answer_too():
    assert not Dropout(1.0)(torch.ones(5, 3)).any()
    assert Dropout(0.5)(torch.ones(0, 3)).shape == (0, 3)
