"""MNIST and CIFAR10, of scikit-learn's digits."""

from torchvision.datasets import mnist
from torchvision.datasets.mnist import MNIST, Digits


class CIFAR10(Digits):
    size, channels = 32, 3


__all__ = ["CIFAR10", "MNIST", "mnist"]
