"""torch's database of modules: forward, backward, to(device), state_dict, memory format."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import excepted
import torch
from same import NAME, Gradients, compare, differences, tensors
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_utils import TestCase


def inputs(module_info: Any, dtype: torch.dtype, training: bool, grad: bool) -> list[Any]:
    torch.manual_seed(0)
    return list(
        module_info.module_inputs_func(
            module_info, device="cpu", dtype=dtype, requires_grad=grad, training=training
        )
    )


def make(module_info: Any, given: Any, dtype: torch.dtype, training: bool) -> torch.nn.Module:
    """The module on the CPU."""
    torch.manual_seed(0)
    made = module_info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    return made.to(dtype).train(training)


class TestModules(TestCase):
    @modules(module_db)
    def test_forward_and_backward_agree_with_the_cpu(
        self, device: str, dtype: torch.dtype, module_info: Any, training: bool
    ) -> None:
        words = []
        for given in inputs(module_info, dtype, training, grad=True):
            if given.forward_input is None:
                continue
            module = make(module_info, given, dtype, training)
            calls = [("", lambda m: m)]
            if module_info.module_memformat_affects_out:
                calls.append(("channels_last ", channels_last))
            for what, change in calls:
                words += [what + w for w in self.differs(module, given.forward_input, change)]
        name = module_info.name
        entry = excepted.find("module", str(dtype)[6:], name)
        if entry is None:
            assert not words, "\n".join(words)
        else:
            assert words, f"{name} agrees with the CPU: take its entry out of excepted.py"

    def differs(self, module: torch.nn.Module, given: Any, change: Any) -> list[str]:
        def call(place: torch.device, args: Any, kwargs: Any) -> Any:
            here = change(copy.deepcopy(module).to(place))
            out = here(*args, **kwargs)
            state = [x for x in here.state_dict().values() if isinstance(x, torch.Tensor)]
            results = [out] if isinstance(out, torch.Tensor) else [*tensors(out)]
            used = [r for r in results if r.requires_grad]
            leaves = [*here.parameters(), *(x for x in tensors((args, kwargs)) if x.requires_grad)]
            if not used or not leaves:
                return results, state
            grads = torch.autograd.grad(
                used, leaves, [torch.ones_like(r) / 2 for r in used], allow_unused=True
            )
            return results, Gradients(grads), state

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = compare(call, (torch.device("cpu"), given.args, given.kwargs))
        return [verdict.words] if verdict.words else []

    @modules(module_db, allowed_dtypes=[torch.float32])
    def test_to_and_state_dict_keep_what_the_module_is(
        self, device: str, dtype: torch.dtype, module_info: Any, training: bool
    ) -> None:
        for given in inputs(module_info, dtype, training, grad=False):
            module = make(module_info, given, dtype, training)
            before = dict(module.named_parameters())
            state = dict(copy.deepcopy(module).state_dict())
            module.to(device)
            for key, parameter in module.named_parameters():
                assert parameter is before[key]
                assert parameter.device.type == NAME
            self.same_state(state, module.state_dict())
            other = make(module_info, given, dtype, training).to(device)
            other.load_state_dict(state)
            self.same_state(state, other.state_dict())
            if all(is_filled(value) for value in state.values()):
                other.load_state_dict(module.state_dict(), assign=True)
                self.same_state(state, other.state_dict())
            module.cpu()
            back = module.state_dict()
            for key, value in state.items():
                if is_filled(value):
                    assert torch.equal(back[key], value)

    def same_state(self, want: dict[str, Any], have: dict[str, Any]) -> None:
        assert want.keys() == have.keys()
        for key, value in want.items():
            if is_filled(value):
                words, exact = differences(value.detach(), have[key].detach())
                assert not words, f"{key}: {words}"
                assert exact


def is_filled(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not torch.nn.parameter.is_lazy(x)


def channels_last(module: torch.nn.Module) -> torch.nn.Module:
    if any(p.dim() == 5 for p in module.parameters()):
        return module.to(memory_format=torch.channels_last_3d)
    return module.to(memory_format=torch.channels_last)


instantiate_device_type_tests(TestModules, globals(), only_for=NAME)
