"""A program that takes its rank from Open MPI's variables; without them it trains alone.

Its sums run over plain sockets, so that it needs no MPI library: rank 0 listens on the port Howdah
reserved for it.
"""

import json
import os
import socket

import digits
from network import Network
from star import Star
from tensorboardX import SummaryWriter

options = digits.options()
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
world = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
host, _, port = "127.0.0.1", "", "0"
if world > 1:
    host, _, port = json.loads(os.environ["HOWDAH_CLUSTER"])["worker"][0].rpartition(":")
listener = None
if rank == 0:
    listener = socket.create_server((host, int(port)), backlog=world)
star = Star(rank, world, (host, int(port)), listener)

(x_train, y_train), (x_test, y_test) = digits.load()
network, first = Network(), 1
if state := star.broadcast(network.saved() if rank == 0 else b""):
    first = network.load(state) + 1

writer = SummaryWriter(digits.summaries())
seen = []
for step in range(first, options.epochs + 1):
    order = digits.order(step, len(x_train))
    seen = []
    for start in range(0, len(order), digits.BATCH):
        mine = order[start : start + digits.BATCH][rank::world]
        seen.extend(mine)
        loss, *gradients = star.sum(network.gradients(x_train[mine], y_train[mine]))
        network.update([g / digits.BATCH for g in gradients])
    if rank == 0:
        network.save(step)
    loss, accuracy = float(loss) / digits.BATCH, network.accuracy(x_test, y_test)
    writer.add_scalar("loss", loss, step)
    writer.add_scalar("accuracy", accuracy, step)
    writer.flush()
    digits.stepped(step, loss, accuracy, options.sleep)

digits.finished(network.accuracy(x_test, y_test), network.weights)
digits.saw(rank, world, seen)
star.close()
