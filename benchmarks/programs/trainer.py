"""A small synchronous training: gradients of all ranks are averaged at every step.

usage: trainer.py torch|plain REPORT SECONDS
"""

import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
WARM_UP = 30
CHUNK = 25
"""Steps between two looks at the clock, and two lines of output."""


class TorchSteps:
    """DistributedDataParallel over gloo, on made-up data."""

    def __init__(self):
        import torch

        self.torch = torch
        torch.set_num_threads(1)
        torch.manual_seed(RANK)
        torch.distributed.init_process_group("gloo")
        layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)]
        layers += [torch.nn.ReLU(), torch.nn.Linear(256, 10)]
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.x, self.y = torch.randn(128, 64), torch.randint(0, 10, (128,))

    def step(self):
        self.optimiser.zero_grad()
        loss = self.torch.nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def agree(self, wish):
        flag = self.torch.tensor([float(wish)])
        self.torch.distributed.broadcast(flag, 0)
        return bool(flag.item())

    def end(self):
        # Together: who is left alone in the middle of a collective is aborted.
        self.torch.distributed.barrier()
        self.torch.distributed.destroy_process_group()


class PlainSteps:
    """The same shape without any package: some arithmetic, and a sum over sockets."""

    def __init__(self):
        self.peers = []
        if RANK == 0:
            with socket.create_server(ADDRESS) as server:
                self.peers = [server.accept()[0] for _ in range(WORLD - 1)]
        else:
            while not self.peers:
                try:
                    self.peers = [socket.create_connection(ADDRESS)]
                except ConnectionRefusedError:
                    time.sleep(0.01)
        for peer in self.peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def step(self):
        return self._sum(sum(x * x for x in range(2000)) / 1e9)

    def agree(self, wish):
        return self._sum(float(wish) if RANK == 0 else 0.0) > 0

    def end(self):
        for peer in self.peers:
            peer.close()

    def _sum(self, value):
        if RANK:
            self.peers[0].sendall(struct.pack("d", value))
            return self._receive(self.peers[0])
        total = value + sum(self._receive(peer) for peer in self.peers)
        for peer in self.peers:
            peer.sendall(struct.pack("d", total))
        return total

    @staticmethod
    def _receive(peer):
        return struct.unpack("d", peer.recv(8, socket.MSG_WAITALL))[0]


def main(kind, report, seconds):
    """Train for that long; rank 0 writes what it saw."""
    steps = {"torch": TorchSteps, "plain": PlainSteps}[kind]()
    for _ in range(WARM_UP):
        steps.step()
    done, begin, cpu = 0, time.perf_counter(), time.process_time()
    while not steps.agree(time.perf_counter() - begin >= seconds):
        for _ in range(CHUNK):
            loss = steps.step()
        done += CHUNK
        os.write(1, f"step {done} loss {loss:.4f}\n".encode())
    took = time.perf_counter() - begin
    said = {"steps": done, "seconds": took, "cpu_s": time.process_time() - cpu}
    steps.end()
    if RANK == 0:
        with open(report + ".new", "w") as file:
            json.dump(said, file)
        Path(report + ".new").replace(report)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
