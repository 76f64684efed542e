"""Cost of protected frames: processor time to send and receive one over loopback, with and without keyed checksums.

Both ends are in one process, so a figure includes sender and receiver; the two variants alternate.
"""

import select
import socket
import statistics
import time

from penstock.runtime.protocol.transport import Connection, hello, listen

SECRET = b"s" * 32
ROUNDS = 5
SIZES = ((200, 4_000_000), (8_192, 200_000_000), (65_536, 400_000_000))  # bytes per frame, and in total
AHEAD = 2**20  # maximum number of bytes waiting for the socket


def connected(protects: bool) -> tuple[Connection, Connection]:
    """Return both ends of an open connection."""
    with listen("127.0.0.1") as listener:
        calling = socket.create_connection(listener.getsockname())
        select.select([listener], [], [])
        answering, _ = listener.accept()
    ends = Connection(calling, SECRET, hello("r", 0, 0), protects), Connection(answering, SECRET, protects=protects)
    ends[0].flush()
    while not all(end.opened for end in ends):
        for end in select.select(ends, [], [])[0]:
            end.read()
    return ends


def measure(protects: bool, size: int, total: int) -> float:
    """Return the microseconds per frame."""
    one, other = connected(protects)
    count, frame, sent, got = total // size, b"x" * size, 0, 0
    begun = time.process_time()
    while got < count:
        if sent < count and one.unsent < AHEAD:
            some = min(max(1, 65_536 // size), count - sent)
            one.write([frame] * some)
            sent += some
        else:
            one.flush()
        got += len(other.read())
    took = time.process_time() - begun
    one.close()
    other.close()
    return 1e6 * took / count


def main() -> None:
    """Print the time per frame with and without protection, by size."""
    for size, total in SIZES:
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(ROUNDS):
            for protects, taken in times.items():
                taken.append(measure(protects, size, total))
        plain, protected = (statistics.median(taken) for taken in times.values())
        print(
            f"{size:>6} B  plain {plain:7.2f} µs, protected {protected:7.2f} µs, {protected - plain:+7.2f} µs per frame"
        )


if __name__ == "__main__":
    main()
