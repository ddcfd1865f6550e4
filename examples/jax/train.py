"""Data-parallel training over several JAX processes. Without JAX_NUM_PROCESSES it trains alone."""

import os

import digits
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tensorboardX import SummaryWriter

options = digits.options()
if int(os.environ.get("JAX_NUM_PROCESSES", 1)) > 1:
    # The coordinator's address JAX reads itself; the two numbers it wants as arguments.
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
    )
rank, world = jax.process_index(), jax.process_count()
if digits.BATCH % len(jax.devices()):
    raise SystemExit(
        f"{digits.BATCH} samples a step cannot be split over {len(jax.devices())} devices"
    )

(x_train, y_train), (x_test, y_test) = digits.load()
generator = np.random.RandomState(1)
weights = [
    generator.normal(0, 0.1, (64, 64)).astype("float32"),
    np.zeros(64, "float32"),
    generator.normal(0, 0.1, (64, 10)).astype("float32"),
    np.zeros(10, "float32"),
]
state = [*weights, *(np.zeros_like(w) for w in weights)]  # weights, then momenta
first = 1
if path := digits.newest("step-*.npz"):
    with np.load(path) as saved:
        state = [saved[f"a{i}"] for i in range(len(state))]
        first = int(saved["step"]) + 1
    digits.resumed(path, first - 1)

mesh = Mesh(np.array(jax.devices()), ("data",))
everywhere, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))


def to(sharding, value):
    return jax.make_array_from_process_local_data(sharding, value)


def logits(weights, x):
    return jax.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3]


@jax.jit
def update(state, x, y):
    def mean_loss(weights):
        chances = jax.nn.log_softmax(logits(weights, x))
        return -jnp.mean(jnp.take_along_axis(chances, y[:, None], 1))

    weights, momenta = state[:4], state[4:]
    loss, gradients = jax.value_and_grad(mean_loss)(weights)
    momenta = [0.9 * m + g for m, g in zip(momenta, gradients)]
    return [*(w - 0.1 * m for w, m in zip(weights, momenta)), *momenta], loss


def local(state):
    return [np.asarray(value.addressable_data(0)) for value in state]


def accuracy(weights):
    return float((np.asarray(logits(weights, x_test)).argmax(1) == y_test).mean())


def write(path):
    with open(path, "wb") as file:
        np.savez(file, step=step, **{f"a{i}": value for i, value in enumerate(local(state))})


state = [to(everywhere, value) for value in state]
writer = SummaryWriter(digits.summaries())
seen = []
for step in range(first, options.epochs + 1):
    order = digits.order(step, len(x_train))
    seen = []
    for start in range(0, len(order), digits.BATCH):
        mine = order[start : start + digits.BATCH].reshape(world, -1)[rank]
        seen.extend(mine)
        state, loss = update(state, to(split, x_train[mine]), to(split, y_train[mine]))
    if rank == 0:
        digits.save(f"step-{step:06d}.npz", write)
    score = accuracy(local(state)[:4])
    writer.add_scalar("loss", float(loss), step)
    writer.add_scalar("accuracy", score, step)
    writer.flush()
    digits.stepped(step, float(loss), score, options.sleep)

digits.finished(accuracy(local(state)[:4]), local(state)[:4])
digits.saw(rank, world, seen)
if world > 1:
    jax.distributed.shutdown()
