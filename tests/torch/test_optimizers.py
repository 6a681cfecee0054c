"""torch's database of optimizers: each with all its flags, several steps, against the CPU."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from same import NAME, compare
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase

STEPS = 4
# State that lies on the host unless the optimizer is capturable.
ON_THE_HOST = ("step", "mu_product", "eta", "mu", "t")


def configurations(optim_info: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """All keyword arguments to try, those that only an accelerator takes too."""
    flags = [(), *((flag,) for flag in optim_info.supported_impls)]
    seen = []
    for given in [*optim_info.optim_inputs_func("cpu"), *optim_info.optim_inputs_func("cuda:0")]:
        for flag in flags:
            if given.kwargs.get("capturable") and flag == ("differentiable",):
                continue  # its way to the same numbers has other gradients
            chosen = dict.fromkeys(optim_info.supported_impls, False)
            kwargs = given.kwargs | (chosen | dict.fromkeys(flag, True) if flag else {})
            if repr(kwargs) not in seen:
                seen.append(repr(kwargs))
                yield f"{given.desc} {kwargs}", kwargs


def trained(optim_info: Any, kwargs: dict[str, Any]) -> Any:
    """A function for `compare`: parameters and state after a few steps."""

    def train(place: torch.device, starts: list[torch.Tensor], grads: list[Any]) -> Any:
        mine = dict(kwargs)
        if place.type == "cpu" and mine.pop("capturable", False):
            mine.pop("foreach", None)  # which takes the learning rate as a tensor only with it
        leaves = [x.requires_grad_() for x in starts]
        parameters = leaves
        if mine.get("differentiable"):
            parameters = [x.clone() for x in leaves]
        optimizer = optim_info.optim_cls(parameters, **mine)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = sum((p * p).sum() for p in parameters)
            loss.backward()
            return loss

        for step in range(STEPS):
            if optim_info.step_requires_closure:
                optimizer.step(closure)
                continue
            for p, g in zip(parameters, grads[step], strict=True):
                p.grad = g
            optimizer.step()
        states = []
        for p in parameters:
            state = optimizer.state[p]
            state = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
            states.append({k: v for k, v in state.items() if k not in ON_THE_HOST})
        if mine.get("differentiable"):
            sum(p.sum() for p in parameters).backward()
            return parameters, states, [x.grad for x in leaves]
        return parameters, states

    return train


class TestOptimizers(TestCase):
    @optims(optim_db, dtypes=[torch.float32, torch.float64])
    def test_parameters_agree_with_the_cpu_after_several_steps(
        self, device: str, dtype: torch.dtype, optim_info: Any
    ) -> None:
        shapes = [(5, 4), (3, 5)] + ([] if optim_info.name == "Muon" else [(7,), ()])
        if optim_info.only_supports_sparse_grads:
            shapes = [(5, 4)]
        torch.manual_seed(0)
        starts = [torch.randn(shape, dtype=dtype) for shape in shapes]
        grads = [[torch.randn(shape, dtype=dtype) for shape in shapes] for _ in range(STEPS)]
        if optim_info.only_supports_sparse_grads:
            grads = [[g.relu().to_sparse() for g in each] for each in grads]
        words, count = [], 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for what, kwargs in configurations(optim_info):
                count += 1
                train = trained(optim_info, kwargs)
                verdict = compare(train, (torch.device("cpu"), starts, grads))
                if verdict.words:
                    words.append(f"{what}: {verdict.words}")
        assert count > 3
        assert not words, "\n".join(words)

    @optims(optim_db)
    def test_state_moves_and_loads(self, device: str, dtype: torch.dtype, optim_info: Any) -> None:
        """A state_dict from the CPU goes on on the device, and back, with the same numbers."""
        if optim_info.only_supports_sparse_grads:
            self.skipTest("SparseAdam: its gradients are sparse, see the test above")
        torch.manual_seed(0)
        start = torch.randn(4, 3)

        def closure_for(p: torch.Tensor, optimizer: Any) -> Any:
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = (p * p).sum()
                loss.backward()
                return loss

            return closure

        def go(p: torch.Tensor, optimizer: Any, steps: int) -> None:
            for _ in range(steps):
                optimizer.step(closure_for(p, optimizer))

        kwargs = {"lr": 0.01}
        p = start.clone().requires_grad_()
        reference = optim_info.optim_cls([p], **kwargs)
        go(p, reference, 2)
        q = p.detach().to(device).requires_grad_()
        ours = optim_info.optim_cls([q], **kwargs)
        ours.load_state_dict(copy.deepcopy(reference.state_dict()))
        go(p, reference, 2)
        go(q, ours, 2)
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=1e-5, atol=1e-6)
        r = q.detach().cpu().requires_grad_()
        back = optim_info.optim_cls([r], **kwargs)
        back.load_state_dict(copy.deepcopy(ours.state_dict()))
        go(p, reference, 1)
        go(r, back, 1)
        torch.testing.assert_close(r.detach(), p.detach(), rtol=1e-5, atol=1e-6)


instantiate_device_type_tests(TestOptimizers, globals(), only_for=NAME)
