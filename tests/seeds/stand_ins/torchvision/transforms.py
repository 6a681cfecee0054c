"""Compose, ToTensor, Normalize and Resize of arrays (height, width, channels)."""

from __future__ import annotations

from enum import Enum

import torch


class InterpolationMode(Enum):
    BICUBIC = "bicubic"


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class Resize:
    def __init__(self, size, interpolation=None):
        self.size, self.mode = size, interpolation.value

    def __call__(self, image):
        planes = torch.as_tensor(image).permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(planes, self.size, mode=self.mode)
        return resized[0].permute(1, 2, 0).numpy()


class ToTensor:
    def __call__(self, image):
        return torch.as_tensor(image).permute(2, 0, 1).contiguous()


class Normalize:
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, planes):
        return (planes - self.mean) / self.std
