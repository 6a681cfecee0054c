"""What the documents take of torchvision: data and pictures, in place of its package. The data are
scikit-learn's handwritten digits, of which nothing is downloaded.
"""

from torchvision import datasets, models, transforms

__all__ = ["datasets", "models", "transforms"]
