"""The driver of a Ray cluster: it asks the nodes for gradients and adds them up.

The cluster is found by RAY_ADDRESS; without it Ray starts a small one on this machine.
"""

import digits
import network
import ray
from network import Network
from tensorboardX import SummaryWriter

PARTS = 2
"""Into how many tasks a batch is split."""

ray.cloudpickle.register_pickle_by_value(network)  # nodes need not have the file


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def gradients(weights, x, y):
    """Run by a node: its id, and the summed loss and gradients of some samples."""
    model = Network()
    model.weights = weights
    return ray.get_runtime_context().get_node_id(), model.gradients(x, y)


options = digits.options()
ray.init(log_to_driver=False)
(x_train, y_train), (x_test, y_test) = digits.load()
model, first = Network(), 1
if state := model.saved():
    first = model.load(state) + 1

writer = SummaryWriter(digits.summaries())
seen = {}  # node → sample ids of the epoch
for step in range(first, options.epochs + 1):
    order = digits.order(step, len(x_train))
    seen = {}
    for start in range(0, len(order), digits.BATCH):
        batch = order[start : start + digits.BATCH]
        parts = [batch[part::PARTS] for part in range(PARTS)]
        # The samples travel with the task: whichever node is alive can compute it.
        weights = ray.put(model.weights)
        answers = ray.get([gradients.remote(weights, x_train[p], y_train[p]) for p in parts])
        for part, (node, _) in zip(parts, answers):
            seen.setdefault(node, []).extend(part)
        loss, *sums = [sum(values) / digits.BATCH for values in zip(*(its for _, its in answers))]
        model.update(sums)
    model.save(step)
    writer.add_scalar("loss", loss, step)
    writer.add_scalar("accuracy", model.accuracy(x_test, y_test), step)
    writer.flush()
    digits.stepped(step, loss, model.accuracy(x_test, y_test), options.sleep)

digits.finished(model.accuracy(x_test, y_test), model.weights)
for number, node in enumerate(sorted(seen)):
    digits.saw(number, len(seen), seen[node])
ray.shutdown()
