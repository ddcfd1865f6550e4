"""Sums of arrays over several processes, by plain sockets: rank 0 in the middle.

It stands in for a communication library in examples whose own cannot be installed everywhere. Slow,
and enough for a small network.
"""

import socket
import struct
import time

import numpy as np


class Star:
    """All ranks of one group. ``listener`` is rank 0's, ``address`` where the others reach it."""

    def __init__(self, rank, world, address=None, listener=None):
        self.rank, self.world = rank, world
        if rank == 0:
            accepted = [listener.accept()[0] for _ in range(world - 1)]
            ranks = {struct.unpack("!I", _read(peer, 4))[0]: peer for peer in accepted}
            self.peers = [ranks[rank] for rank in range(1, world)]
        else:
            self.peers = [connect(address)]
            self.peers[0].sendall(struct.pack("!I", rank))

    def broadcast(self, data):
        """Rank 0's bytes on every rank."""
        if self.rank == 0:
            for peer in self.peers:
                send(peer, data)
            return data
        return receive(self.peers[0])

    def sum(self, arrays):
        """The sum over all ranks of each array, the same bits everywhere."""
        flat = np.concatenate([np.ravel(a) for a in arrays]).astype("float64")
        if self.rank == 0:
            for peer in self.peers:
                flat = flat + np.frombuffer(receive(peer))
        else:
            send(self.peers[0], flat.tobytes())
        flat = np.frombuffer(self.broadcast(flat.tobytes()))
        ends = np.cumsum([np.size(a) for a in arrays])[:-1]
        return [part.reshape(np.shape(a)) for part, a in zip(np.split(flat, ends), arrays)]

    def close(self):
        for peer in self.peers:
            peer.close()


def connect(address, patience=60):
    """A connection to a rank 0 that may not listen yet."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def send(peer, data):
    peer.sendall(struct.pack("!Q", len(data)) + data)


def receive(peer):
    return _read(peer, struct.unpack("!Q", _read(peer, 8))[0])


def _read(peer, count):
    data = bytearray()
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError("a peer has gone")
        data += part
    return bytes(data)
