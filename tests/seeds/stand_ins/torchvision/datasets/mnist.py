"""The digits in the size of MNIST's, 256 to train on and 128 to test."""

import torch
from sklearn.datasets import load_digits


class Digits(torch.utils.data.Dataset):
    size, channels = 28, 1

    def __init__(self, folder, train=True, transform=None, download=False):
        digits = load_digits()
        chosen = slice(0, 256) if train else slice(256, 384)
        images = torch.tensor(digits.images[chosen], dtype=torch.float32)[:, None] / 16
        self.images = torch.nn.functional.interpolate(images, (self.size, self.size))
        self.labels = [int(label) for label in digits.target[chosen]]
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index].permute(1, 2, 0).expand(-1, -1, self.channels).numpy()
        return self.transform(image) if self.transform else image, self.labels[index]


class MNIST(Digits):
    pass
