"""Proximal policy optimization (Schulman et al. 2017): a pole is balanced on a cart.

The carts are on the device too: the equations of motion of Barto, Sutton and Anderson (1983), for
all of them at once.

    python examples/zoo/ppo.py [--rounds N] [--device cpu]
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical

CARTS, STEPS, DISCOUNT, TRACE = 32, 64, 0.99, 0.95


class Carts:
    """Position, speed, angle and its speed [carts, 4]. A fallen pole is set up again."""

    def __init__(self, device: torch.device) -> None:
        self.state = torch.empty(CARTS, 4, device=device).uniform_(-0.05, 0.05)
        self.age = torch.zeros(CARTS, device=device)

    def step(self, action: Tensor) -> Tensor:
        """Push all carts; which poles have fallen."""
        x, v, angle, turn = self.state.unbind(1)
        push = (action.float() * 2 - 1) * 10
        sin, cos = angle.sin(), angle.cos()
        both = (push + 0.05 * turn**2 * sin) / 1.1
        bend = (9.8 * sin - cos * both) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = both - 0.05 * bend * cos / 1.1
        now = torch.stack(
            [x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend], 1
        )
        self.age += 1
        fallen = (now[:, 0].abs() > 2.4) | (now[:, 2].abs() > 0.2095) | (self.age >= 500)
        self.state = torch.where(fallen[:, None], torch.rand_like(now) * 0.1 - 0.05, now)
        self.age = self.age.masked_fill(fallen, 0)
        return fallen


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, state: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.actor(state)), self.critic(state).squeeze(-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default=torch.accelerator.current_accelerator() or "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)

    carts, model = Carts(device), ActorCritic().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    lengths = []
    for round in range(args.rounds):
        steps = []
        with torch.no_grad():
            for _ in range(STEPS):
                state = carts.state
                policy, value = model(state)
                action = policy.sample()
                fallen = carts.step(action)
                steps.append((state, action, policy.log_prob(action), value, ~fallen))
            states, actions, before, values, goes_on = map(torch.stack, zip(*steps, strict=True))
            following, advantage = model(carts.state)[1], torch.zeros(CARTS, device=device)
            advantages = torch.empty_like(values)
            for t in reversed(range(STEPS)):
                delta = 1 + DISCOUNT * following * goes_on[t] - values[t]
                advantage = delta + DISCOUNT * TRACE * advantage * goes_on[t]
                advantages[t], following = advantage, values[t]
        returns = (advantages + values).flatten()
        weights = F.layer_norm(advantages.flatten(), (advantages.numel(),))
        states, actions, before = states.flatten(0, 1), actions.flatten(), before.flatten()
        for _ in range(4):
            for batch in torch.randperm(len(states)).to(device).split(512):
                policy, value = model(states[batch])
                ratio = (policy.log_prob(actions[batch]) - before[batch]).exp()
                gain = torch.min(ratio * weights[batch], ratio.clamp(0.8, 1.2) * weights[batch])
                loss = F.mse_loss(value, returns[batch]) / 100 - gain.mean()
                loss = loss - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        lengths.append(goes_on.numel() / max(1, (~goes_on).sum().item()))
        if round % 5 == 0:
            print(f"round {round}: a pole stands for {lengths[-1]:.0f} steps")

    print(f"a pole stands {lengths[-1] / lengths[0]:.1f} times as long, on {device.type}")


if __name__ == "__main__":
    main()
