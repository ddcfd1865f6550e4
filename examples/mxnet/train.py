"""Data-parallel training with MXNet's parameter server, ``dist_sync``.

With MXNet installed it uses it, else a stand-in. Either way scheduler and servers do their work while
it is imported, and only workers go on.
"""

import os

try:
    import mxnet
except ImportError:
    import standin

    mxnet = None

import digits
import numpy as np
from network import Network
from tensorboardX import SummaryWriter


class Store:
    """MXNet's key-value store with the stand-in's one call."""

    def __init__(self):
        self.store = mxnet.kvstore.create("dist_sync")
        self.rank, self.num_workers, self.known = self.store.rank, self.store.num_workers, False

    def push_pull(self, arrays):
        values = [mxnet.nd.array(np.atleast_1d(a)) for a in arrays]
        keys = list(range(len(values)))
        if not self.known:
            self.store.init(keys, values)
            self.known = True
        self.store.push(keys, values)
        self.store.pull(keys, values)
        return [v.asnumpy().reshape(np.shape(a)) for v, a in zip(values, arrays)]

    def close(self):
        pass


options = digits.options()
store = Store() if mxnet is not None else standin.KVStore()
rank, world = store.rank, store.num_workers
# The parameter server numbers workers as they come; whose checkpoint counts is Howdah's affair.
chief = os.environ.get("HOWDAH_IS_CHIEF", "true") == "true"
(x_train, y_train), (x_test, y_test) = digits.load()

network, first = Network(), 1
if state := network.saved():
    first = network.load(state) + 1

writer = SummaryWriter(digits.summaries())
seen = []
for step in range(first, options.epochs + 1):
    order = digits.order(step, len(x_train))
    seen = []
    for start in range(0, len(order), digits.BATCH):
        mine = order[start : start + digits.BATCH][rank::world]
        seen.extend(mine)
        loss, *gradients = store.push_pull(network.gradients(x_train[mine], y_train[mine]))
        network.update([g / digits.BATCH for g in gradients])
    if chief:
        network.save(step)
    loss, accuracy = float(loss) / digits.BATCH, network.accuracy(x_test, y_test)
    writer.add_scalar("loss", loss, step)
    writer.add_scalar("accuracy", accuracy, step)
    writer.flush()
    digits.stepped(step, loss, accuracy, options.sleep)

digits.finished(network.accuracy(x_test, y_test), network.weights)
digits.saw(rank, world, seen)
store.close()
