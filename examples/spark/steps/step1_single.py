"""Step 1: an ordinary PyTorch program, one process.

python examples/spark/steps/step1_single.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


def load():
    x, y = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(y))
    return torch.tensor(x[mixed] / 16.0, dtype=torch.float32), torch.tensor(y[mixed])


def main():
    torch.manual_seed(1)
    x, y = load()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(10):
        order = torch.randperm(1440, generator=torch.Generator().manual_seed(epoch)) + 357
        for batch in order.split(60):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"final accuracy {float((model(x[:357]).argmax(1) == y[:357]).float().mean()):.4f}")


if __name__ == "__main__":
    main()
