"""Data-parallel training over Horovod; alone where no Horovod variables are set.

With Horovod and PyTorch installed it uses them, else a stand-in of the same few calls.
"""

import digits
import numpy as np
from network import Network
from tensorboardX import SummaryWriter

try:
    import horovod.torch as horovod
    import torch
except ImportError:
    import standin as horovod

    torch = None


def mean(array):
    """The mean of an array over all ranks."""
    if torch is None:
        return horovod.allreduce(array)
    return horovod.allreduce(torch.from_numpy(np.asarray(array))).numpy()


options = digits.options()
horovod.init()
rank, world = horovod.rank(), horovod.size()
(x_train, y_train), (x_test, y_test) = digits.load()

network, first = Network(), 1
if state := horovod.broadcast_object(network.saved() if rank == 0 else b"", root_rank=0):
    first = network.load(state) + 1

writer = SummaryWriter(digits.summaries())
seen = []
for step in range(first, options.epochs + 1):
    order = digits.order(step, len(x_train))
    seen = []
    for start in range(0, len(order), digits.BATCH):
        mine = order[start : start + digits.BATCH][rank::world]
        seen.extend(mine)
        share = world / digits.BATCH  # the mean over ranks is then the mean over the batch
        parts = [mean(part * share) for part in network.gradients(x_train[mine], y_train[mine])]
        network.update(parts[1:])
    if rank == 0:
        network.save(step)
    loss, accuracy = float(parts[0]), network.accuracy(x_test, y_test)
    writer.add_scalar("loss", loss, step)
    writer.add_scalar("accuracy", accuracy, step)
    writer.flush()
    digits.stepped(step, loss, accuracy, options.sleep)

digits.finished(network.accuracy(x_test, y_test), network.weights)
digits.saw(rank, world, seen)
horovod.shutdown()
