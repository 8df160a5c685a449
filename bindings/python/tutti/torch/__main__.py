"""Says where the backend for the PyTorch that is installed lies, and builds it first where it has to be:
python -m tutti.torch"""

from tutti.torch.extension import build

if __name__ == "__main__":
    print(build())
