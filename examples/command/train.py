"""One of several independent trainings: each task tries a learning rate of its own.

There is no framework and no peer. The task's number says which rate; without Howdah it is the first.
"""

import os

import digits
from network import Network
from tensorboardX import SummaryWriter

RATES = (0.1, 0.05, 0.15, 0.2)

options = digits.options()
index, count = int(os.environ.get("HOWDAH_INDEX", 0)), int(os.environ.get("HOWDAH_WORLD_SIZE", 1))
rate = RATES[index % len(RATES)]
print(f"task {index} of {count} tries the learning rate {rate}", flush=True)

(x_train, y_train), (x_test, y_test) = digits.load()
network, first = Network(), 1
if state := network.saved():
    first = network.load(state) + 1

writer = SummaryWriter(digits.summaries())
seen = []
for step in range(first, options.epochs + 1):
    seen = digits.order(step, len(x_train))
    for start in range(0, len(seen), digits.BATCH):
        batch = seen[start : start + digits.BATCH]
        loss, *gradients = network.gradients(x_train[batch], y_train[batch])
        network.update([g / digits.BATCH for g in gradients], rate)
    network.save(step)
    loss, accuracy = float(loss) / digits.BATCH, network.accuracy(x_test, y_test)
    writer.add_scalar("loss", loss, step)
    writer.add_scalar("accuracy", accuracy, step)
    writer.flush()
    digits.stepped(step, loss, accuracy, options.sleep)

digits.finished(network.accuracy(x_test, y_test), network.weights)
digits.saw(index, count, seen)
