"""Laws of Muon: its updates are orthogonal, are PyTorch's own, and reach the matrices of hidden layers alone."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from test_train import everything, recipe_in, same
from torch import nn

from regard.interface import Ids, Label, Picture, Shapes
from regard.models.convnet import Config as ConvNet
from regard.models.convnet import build as convnet
from regard.models.transformer import Config as Transformer
from regard.models.transformer import build as transformer
from regard.train.optimiser import NARROW, Optimiser, hidden_matrices, orthogonal
from regard.train.session import Session
from regard.train.training import TrainConfig, Training


@pytest.mark.parametrize("shape", [(17, 17), (17, 61), (61, 17), (64, 23 * 9)])
def test_an_update_is_nearly_orthogonal_and_keeps_its_directions(shape):
    torch.manual_seed(1)
    matrices = torch.randn(3, *shape) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]  # each has its own size
    values = torch.linalg.svdvals(orthogonal(matrices))
    assert float(values.min()) > 0.6 and float(values.max()) < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    turned = left.mT @ orthogonal(matrices) @ right.mT
    assert float((turned - torch.diag_embed(turned.diagonal(dim1=1, dim2=2))).abs().max()) < 1e-3


@pytest.mark.parametrize("shape", [(32, 48), (48, 32)])
def test_steps_are_those_of_pytorch(shape):
    """PyTorch's iteration runs in bfloat16, so directions agree to its rounding."""
    torch.manual_seed(1)
    first = torch.randn(*shape)
    ours, theirs = nn.Parameter(first.clone()), nn.Parameter(first.clone())
    group = {"params": [ours], "weight_decay": 0.1, "muon": True}
    mine = Optimiser([group], lr=0.02, fused=True, dtype=torch.float32)
    its = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        gradient = torch.randn(*shape)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        its.step()
    moved, wanted = (ours - first).detach(), (theirs - first).detach()
    assert float((moved - wanted).norm() / wanted.norm()) < 0.03


def test_hidden_matrices_are_those_of_linear_layers_convolutions_and_cells():
    model = transformer(Transformer(dim=32, heads=2, feed_forward=48, layers=1), Shapes(Ids(997), Ids(997)))
    names = {name for name, weight in model.named_parameters() if weight in hidden_matrices(model)}
    every = {name for name, weight in model.named_parameters() if weight.dim() > 1}
    assert names and all("attention" in name or "feed_forward" in name for name in names)
    assert every - names and all("embed" in name or "head" in name for name in every - names)

    pictures = convnet(ConvNet(width=16, stages=2), Shapes(Picture(12, 12, 1), Label(10)))
    turned = hidden_matrices(pictures)
    assert any(weight.dim() == 4 for weight in turned)
    assert all(min(len(weight), weight[0].numel()) >= NARROW for weight in turned)


def test_what_is_no_hidden_matrix_learns_as_with_adamw():
    def learnt(optimiser: str) -> dict[str, torch.Tensor]:
        torch.manual_seed(1)
        model = transformer(Transformer(dim=32, heads=2, feed_forward=48, layers=1), Shapes(Ids(97), Ids(97)))
        training = Training(model, TrainConfig(steps=1, optimiser=optimiser))
        random = torch.Generator().manual_seed(2)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=random)
        training.optimiser.step()
        turned = hidden_matrices(model)
        return {f"{name}{'*' * (weight in turned)}": weight.detach() for name, weight in model.named_parameters()}

    adamw, muon = learnt("adamw"), learnt("muon")
    assert all(torch.equal(adamw[name], muon[name]) != name.endswith("*") for name in adamw)


def test_resumed_equals_straight(tmp_path: Path):
    recipe = recipe_in(tmp_path, "train.optimiser=muon", "model.embedding=16", "model.hidden=16")
    straight = Session(recipe, tmp_path / "straight")
    list(straight.steps())
    assert any(name.startswith("optimiser.momentum.") for name in straight.training.tensors())
    again = Session(recipe, tmp_path / "again")
    list(islice(again.steps(), 4))
    again.save()
    again = Session(recipe, tmp_path / "again")
    assert again.resumed
    list(again.steps())
    assert same(everything(again), everything(straight))
