"""The gradients of some parameters, as they are or as views of one flat buffer.

amp takes gradients away before a backward pass, so that the new ones can be unscaled alone, and
adds the former ones back after it. `combine_grad=True` keeps them in one buffer for each device and
dtype: one kernel then unscales, clips or reduces all of them.

The views outlive whatever sets `.grad` to None. A hook that runs after autograd has accumulated a
gradient copies it into the buffer and puts the view in its place, so that a parameter which got no
gradient keeps None, as without the buffer, and its part of the buffer is zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import is_non_overlapping_and_dense_or_false

Key = tuple[torch.device, torch.dtype]


class Gradients:
    """Gradients in tensors of their own."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)

    def extend(self, params: Sequence[Tensor]) -> None:
        """Take more parameters in."""
        self.params += params

    def tensors(self) -> list[Tensor]:
        """What there is, to be changed in place; sparse ones are coalesced."""
        for p in self.params:
            if p.grad is not None and p.grad.is_sparse:
                p.grad = p.grad.coalesce()
        return [p.grad for p in self.params if p.grad is not None]

    def take(self) -> Any:
        """Take all gradients away; what is given back is for `add`."""
        saved = [p.grad for p in self.params]
        for p in self.params:
            p.grad = None
        return saved

    def add(self, saved: Any) -> None:
        """Add what `take` gave to what there is now."""
        # A parameter that came in between has none.
        for p, former in zip(self.params, saved, strict=False):
            if former is None:
                continue
            if p.grad is not None:
                # Into the former one: a program may hold it.
                p.grad = former + p.grad if former.is_sparse else former.add_(p.grad)
            else:
                p.grad = former

    def clear(self, set_to_none: bool = True) -> None:
        """As zero_grad()."""
        for p in self.params:
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                p.grad.detach_()
                p.grad.zero_()

    def from_scaled(self, source: Gradients, unscale: Callable[[list[Tensor]], None]) -> None:
        """Add the gradients of `source`, whose parameters are these in another dtype, unscaled."""
        new: list[Tensor] = []
        pairs = [(p, s.grad) for p, s in zip(self.params, source.params, strict=True)]
        for p, grad in pairs:
            if grad is not None:
                whole = grad.coalesce() if grad.is_sparse else grad
                new.append(whole.to(p.dtype, copy=True))
        unscale(new)
        for (p, _), grad in zip([pair for pair in pairs if pair[1] is not None], new, strict=True):
            if p.grad is None:
                p.grad = grad
            else:
                p.grad = p.grad.add_(grad) if not p.grad.is_sparse else p.grad + grad


class FlatGradients(Gradients):
    """Gradients as views of one buffer for each device and dtype.

    `like` are parameters whose devices and dtypes decide which share a buffer (default: `params`),
    so that a model's and its masters' buffers have one layout.
    """

    def __init__(self, params: Sequence[Tensor], like: Sequence[Tensor] | None = None) -> None:
        super().__init__([])
        self.flat: dict[Key, Tensor] = {}
        self.views: list[Tensor] = []
        self._keys: list[Key] = []
        self._index: dict[int, int] = {}
        self._hooks: list[Any] = []
        self.extend(params, like)

    def extend(self, params: Sequence[Tensor], like: Sequence[Tensor] | None = None) -> None:
        former = [(p, p.grad) for p in self.params if p.grad is not None]
        for p, source in zip(params, params if like is None else like, strict=True):
            self._index[id(p)] = len(self.params)
            self.params.append(p)
            self._keys.append((source.device, source.dtype))
            if p.requires_grad and p.is_leaf:
                hook = p.register_post_accumulate_grad_hook(self._adopt)  # type: ignore[no-untyped-call]
                self._hooks.append(hook)
            if p.grad is not None:
                former.append((p, p.grad))
        self._allocate()
        for p, grad in former:
            p.grad = grad
            self._adopt(p)

    def _allocate(self) -> None:
        members: dict[Key, list[int]] = defaultdict(list)
        for i, key in enumerate(self._keys):
            members[key].append(i)
        self.flat, views = {}, {}
        for key, indices in members.items():
            sizes = [self.params[i].numel() for i in indices]
            dtype = self.params[indices[0]].dtype
            flat = torch.zeros(sum(sizes), dtype=dtype, device=key[0])
            self.flat[key] = flat
            offset = 0
            for i, size in zip(indices, sizes, strict=True):
                views[i] = _view(flat, offset, self.params[i])
                offset += size
        self.views = [views[i] for i in range(len(self.params))]

    @torch.no_grad()
    def _adopt(self, param: Tensor) -> None:
        """Put the view in the place of `param`'s gradient, with the same values."""
        view = self.views[self._index[id(param)]]
        if param.grad is not None and param.grad is not view:
            grad = param.grad.to_dense() if param.grad.is_sparse else param.grad
            if grad.data_ptr() != view.data_ptr() or grad.stride() != view.stride():
                view.copy_(grad)
            param.grad = view

    def _sync(self) -> None:
        """Follow what was done to `.grad` by hand."""
        for p, view in zip(self.params, self.views, strict=True):
            if p.grad is None:
                view.zero_()
            else:
                self._adopt(p)

    def tensors(self) -> list[Tensor]:
        """The buffers in which there is a gradient."""
        self._sync()
        there = {k for k, p in zip(self._keys, self.params, strict=True) if p.grad is not None}
        return [flat for key, flat in self.flat.items() if key in there]

    def take(self) -> Any:
        self._sync()
        attached = [p.grad is not None for p in self.params]
        saved = {k: flat.clone() for k, flat in self.flat.items()} if any(attached) else {}
        self.clear()
        return attached, saved

    def add(self, saved: Any) -> None:
        attached, buffers = saved
        self._sync()
        if not buffers:
            return
        for key, buffer in buffers.items():
            # After extend() the buffer is longer; the former ones come first in it.
            self.flat[key][: buffer.numel()].add_(buffer)
        for p, view, was in zip(self.params, self.views, attached, strict=False):
            if was:
                p.grad = view

    def clear(self, set_to_none: bool = True) -> None:
        for flat in self.flat.values():
            flat.zero_()
        for p, view in zip(self.params, self.views, strict=True):
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = view

    def from_scaled(self, source: Gradients, unscale: Callable[[list[Tensor]], None]) -> None:
        assert isinstance(source, FlatGradients)
        present = {id(t) for t in source.tensors()}
        self._sync()
        new = {
            k: source.flat[k].to(flat.dtype, copy=True)
            for k, flat in self.flat.items()
            if id(source.flat[k]) in present
        }
        unscale(list(new.values()))
        for key, buffer in new.items():
            self.flat[key].add_(buffer)
        for p, view, model in zip(self.params, self.views, source.params, strict=True):
            if model.grad is not None:
                p.grad = view

    def reduce(self, parts: int) -> None:
        """Average over all processes, each buffer in `parts` that overlap.

        A parameter that only another process used gets its gradient too; one that none used keeps
        None.
        """
        dist = torch.distributed
        world = dist.get_world_size()
        self._sync()
        works = []
        for flat in self.flat.values():
            flat.div_(world)  # first, so that the sum of halves overflows later
            works += [dist.all_reduce(part, async_op=True) for part in flat.chunk(parts)]
        device = self.params[0].device if self.params else torch.device("cpu")
        used = torch.tensor([float(p.grad is not None) for p in self.params], device=device)
        dist.all_reduce(used, op=dist.ReduceOp.MAX)
        for work in works:
            if work is not None:
                work.wait()
        for p, view, by_any in zip(self.params, self.views, used.tolist(), strict=True):
            if by_any:
                p.grad = view

    def release(self) -> None:
        """Let the parameters go; gradients stay where they are."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _view(flat: Tensor, offset: int, param: Tensor) -> Tensor:
    """The part of `flat` for `param`, with its strides where these fill it, else contiguous."""
    strides = param.stride()
    if not is_non_overlapping_and_dense_or_false(param):
        return flat[offset : offset + param.numel()].view(param.shape)
    return flat.as_strided(param.shape, strides, offset)
