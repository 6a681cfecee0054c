"""A policy that is rewarded for naming a digit: REINFORCE with a baseline, on CUDA's names."""

import torch
import torch_dipu
from sklearn.datasets import load_digits
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(19)
digits = load_digits()
states = torch.tensor(digits.data, dtype=torch.float32) / 16
answers = torch.tensor(digits.target)
policy = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
value = nn.Linear(64, 1)
if torch.cuda.is_available():
    policy, value = policy.cuda(), value.cuda()
where = next(policy.parameters()).device
print("device", where.type)
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=1e-2)
for episode in range(6):
    state = states[episode * 128 : episode * 128 + 128].to(where)
    choice = Categorical(logits=policy(state))
    # The host draws, so that a run is the same on every device.
    action = torch.multinomial(choice.probs.detach().cpu(), 1).squeeze(1)
    reward = (action == answers[episode * 128 : episode * 128 + 128]).float().to(where)
    baseline = value(state).squeeze(1)
    gain = -(choice.log_prob(action.to(where)) * (reward - baseline.detach())).mean()
    loss = gain + 0.5 * nn.functional.mse_loss(baseline, reward) - 0.01 * choice.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
