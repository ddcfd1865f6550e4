"""The small network of the examples that bring no framework for it: 64-64-10, in NumPy."""

import io

import digits
import numpy as np


class Network:
    """Weights and momenta of stochastic gradient descent."""

    def __init__(self):
        generator = np.random.RandomState(1)
        self.weights = [
            generator.normal(0, 0.1, (64, 64)),
            np.zeros(64),
            generator.normal(0, 0.1, (64, 10)),
            np.zeros(10),
        ]
        self.momenta = [np.zeros_like(w) for w in self.weights]

    def gradients(self, x, y):
        """The summed loss of some samples, then the summed gradients."""
        w = self.weights
        hidden = np.maximum(x @ w[0] + w[1], 0)
        scores = hidden @ w[2] + w[3]
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        rows = np.arange(len(y))
        loss = -np.log(chances[rows, y]).sum()
        chances[rows, y] -= 1
        back = (chances @ w[2].T) * (hidden > 0)
        return [loss, x.T @ back, back.sum(0), hidden.T @ chances, chances.sum(0)]

    def update(self, gradients, rate=0.1):
        self.momenta = [0.9 * m + g for m, g in zip(self.momenta, gradients)]
        self.weights = [w - rate * m for w, m in zip(self.weights, self.momenta)]

    def accuracy(self, x, y):
        hidden = np.maximum(x @ self.weights[0] + self.weights[1], 0)
        return float(((hidden @ self.weights[2] + self.weights[3]).argmax(1) == y).mean())

    def dump(self, step):
        """Everything a run needs to go on after ``step``."""
        file = io.BytesIO()
        arrays = {f"a{i}": a for i, a in enumerate((*self.weights, *self.momenta))}
        np.savez(file, step=step, **arrays)
        return file.getvalue()

    def load(self, data):
        """Take over what `dump` gave; returns its step."""
        with np.load(io.BytesIO(data)) as saved:
            arrays = [saved[f"a{i}"] for i in range(8)]
            self.weights, self.momenta = arrays[:4], arrays[4:]
            return int(saved["step"])

    def save(self, step):
        digits.save(f"step-{step:06d}.npz", lambda path: path.write_bytes(self.dump(step)))

    @staticmethod
    def saved():
        """The newest checkpoint's bytes, empty if there is none."""
        path = digits.newest("step-*.npz")
        if path is None:
            return b""
        digits.resumed(path, int(path.stem.split("-")[1]))
        return path.read_bytes()
