"""The size from which `sendfile` is cheaper than reading into memory and writing: CPU per slice, by slice size.

    python -m bench.sendfile_bench

Both ways send the same slices of one file, which is in the page cache, over a loopback connection to a process that
throws them away. The benchmark compares the CPU time of the sender, which limits a broker; both ways are measured
alternately, so that a busy machine disturbs both.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
import tempfile

SIZES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
KIBIBYTE = 1024
BYTES_PER_TURN = 64 * KIBIBYTE * KIBIBYTE
TURNS = 3
HEADER = b"h" * 60


def swallow(port: int) -> None:
    """Read everything from a connection."""
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while sock.recv_into(buffer):
            pass


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def by_copy(sock: socket.socket, fd: int, size: int, count: int) -> None:
    """Read the slice and send it in one write with its header."""
    for _ in range(count):
        data = os.pread(fd, size, 0)
        sent = sock.sendmsg([HEADER, data])
        if sent < len(HEADER) + size:
            sock.sendall(memoryview(data)[sent - len(HEADER) :])


def by_sendfile(sock: socket.socket, fd: int, size: int, count: int) -> None:
    """Send the header with MSG_MORE, and let the kernel send the slice."""
    for _ in range(count):
        sock.send(HEADER, socket.MSG_MORE)
        position = 0
        while position < size:
            position += os.sendfile(sock.fileno(), fd, position, size - position)


def main() -> None:
    """Print one line for each size."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile() as file:
        file.write(os.urandom(SIZES[-1] * KIBIBYTE))
        file.flush()
        reader = multiprocessing.Process(target=swallow, args=(server.getsockname()[1],))
        reader.start()
        sock, _ = server.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(f"{'slice':>8} {'copy µs':>9} {'sendfile µs':>12} {'sendfile / copy':>16}")
        for kibibytes in SIZES:
            size = kibibytes * KIBIBYTE
            count = min(20_000, BYTES_PER_TURN // size)
            spent = {by_copy: 0.0, by_sendfile: 0.0}
            for _ in range(TURNS):
                for way in spent:
                    before = cpu_s()
                    way(sock, file.fileno(), size, count)
                    spent[way] += cpu_s() - before
            copy, kernel = (spent[way] / (TURNS * count) * 1e6 for way in (by_copy, by_sendfile))
            print(f"{kibibytes:>4} KiB {copy:>10.1f} {kernel:>12.1f} {kernel / copy:>16.2f}")
        sock.close()
        reader.join()


if __name__ == "__main__":
    main()
