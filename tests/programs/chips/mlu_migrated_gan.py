"""A GAN for CUDA that Cambricon's gpu_migration moves to the MLU."""

import torch
import torch.nn as nn
import torch_mlu
import torch_mlu.utils.gpu_migration
from sklearn.datasets import load_digits

torch.manual_seed(15)
torch.cuda.manual_seed_all(15)
cuda = torch.cuda.is_available()
device = torch.device("cuda:0" if cuda else "cpu")
images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
generator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 64), nn.Tanh())
critic = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
criterion = nn.BCEWithLogitsLoss()
if cuda:
    generator.cuda()
    critic.cuda()
    criterion.cuda()
print("device", next(generator.parameters()).device.type)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
for step in range(5):
    real = images[step * 64 : step * 64 + 64].to(device)
    noise = torch.randn(64, 8).to(device)
    ones, zeros = torch.ones(64, 1, device=device), torch.zeros(64, 1, device=device)
    optimizer_c.zero_grad()
    fake = generator(noise)
    loss_c = criterion(critic(real), ones) + criterion(critic(fake.detach()), zeros)
    loss_c.backward()
    optimizer_c.step()
    optimizer_g.zero_grad()
    loss_g = criterion(critic(fake), ones)
    loss_g.backward()
    optimizer_g.step()
    print("loss", loss_c.item())
    print("loss", loss_g.item())
