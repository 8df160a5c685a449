"""Builds the backend for the PyTorch that is installed, unless it has been: python -m tutti.torch"""

from tutti.torch.extension import build

if __name__ == "__main__":
    print(build())
