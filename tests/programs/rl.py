"""A2C on a toy task. dtype variables in the way of 2017, a replay memory, a copy of the network."""
import copy
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

use_cuda = torch.cuda.is_available()
dtype = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
device = torch.device("cuda") if use_cuda else torch.device("cpu")


class Task:
    """A walk on a line; the agent shall go right."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.place = 0.0

    def reset(self):
        self.place = 0.0
        return self.observe()

    def observe(self):
        return torch.tensor([self.place, float(torch.rand(1, generator=self.generator))])

    def step(self, action):
        self.place += 1.0 if action == 1 else -1.0
        return self.observe(), self.place / 10, abs(self.place) > 5


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 16)
        self.actor = nn.Linear(16, 2)
        self.critic = nn.Linear(16, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return F.softmax(self.actor(x), dim=-1), self.critic(x)


torch.manual_seed(5)
if use_cuda:
    torch.cuda.manual_seed_all(5)
model = ActorCritic()
target = copy.deepcopy(model)
if use_cuda:
    model, target = model.cuda(), target.cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-3)
memory = deque(maxlen=64)
losses = []
choices = torch.Generator().manual_seed(9)
for episode in range(3):
    task = Task(episode)
    state, rewards, logs, values = task.reset().type(dtype), [], [], []
    for _ in range(8):
        probabilities, value = model(state.to(device))
        action = int(torch.rand(1, generator=choices).item() < probabilities[1].item())
        logs.append(Categorical(probabilities).log_prob(torch.tensor(action, device=device)))
        values.append(value)
        following, reward, done = task.step(action)
        memory.append((state, reward))
        state = following.type(dtype)
        rewards.append(reward)
        if done:
            break
    total, returns = 0.0, []
    for r in reversed(rewards):
        total = r + 0.9 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    if next(model.parameters()).is_cuda:
        returns = returns.cuda()
    advantage = returns - torch.cat(values)
    loss = -(torch.stack(logs) * advantage.detach()).mean() + advantage.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    batch = torch.stack([s for s, _ in memory])
    assert batch.is_cuda == use_cuda
    with torch.no_grad():
        difference = F.mse_loss(model(batch)[1], target(batch)[1])
    target.load_state_dict(model.state_dict())
    losses += [loss.item(), difference.item()]
print("device", next(model.parameters()).device)
for loss in losses:
    print("loss", loss)
