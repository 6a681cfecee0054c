"""Policy gradient on a small world of its own, with a replay buffer on the GPU."""

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
assert str(device).startswith("cuda")
random.seed(3)
torch.manual_seed(3)


class Corridor:
    def reset(self):
        self.at = 3
        return self.state()

    def state(self):
        return torch.eye(7)[self.at]

    def step(self, action):
        self.at = max(0, min(6, self.at + (1 if action else -1)))
        return self.state(), float(self.at == 6), self.at in (0, 6)


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(7, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x.to(self.l1.weight.device))))


policy, target = DQN().to(device), DQN().to(device)
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-2)
memory, world = deque(maxlen=200), Corridor()
steps = 0
for _ in range(6):
    state, done = world.reset().unsqueeze(0), False
    while not done and steps < 60:
        steps += 1
        if random.random() < 0.5:
            action = torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)
        else:
            with torch.no_grad():
                action = policy(state).max(1)[1].view(1, 1)
        observed, reward, done = world.step(action.item())
        reward = torch.cuda.FloatTensor([reward])
        memory.append((state.to(device), action, observed.unsqueeze(0).to(device), reward))
        state = observed.unsqueeze(0)
        if len(memory) < BATCH:
            continue
        states, actions, nexts, rewards = (
            torch.cat(column) for column in zip(*random.sample(memory, BATCH), strict=True)
        )
        values = policy(states).gather(1, actions)
        expected = rewards + 0.9 * target(nexts).max(1)[0].detach()
        loss = F.smooth_l1_loss(values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        for p in policy.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        print(f"loss {loss.item():.6f}")
