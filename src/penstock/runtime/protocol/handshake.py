"""The handshake of a connection: each end identifies itself, and proves that it knows the run's secret."""

from collections.abc import Callable

from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol.wire import Wire

PROTOCOL = 4


class Hello(Wire, tag=10):
    """The first message on a connection: the identity of the caller, and its challenge for the other end."""

    protocol: int
    run: str
    worker: int
    incarnation: int
    nonce: bytes
    heartbeat: bool = False  # the connection carries heartbeats only
    protects: bool = False  # every frame after the handshake carries a keyed checksum
    token: bytes = b""  # shows that the caller knows the secret; it can be replayed, so it only sets a priority


class Welcome(Wire, tag=11):
    """The answer: proof of the secret, and a challenge in turn."""

    proof: bytes
    nonce: bytes


class Proof(Wire, tag=12):
    """The caller's proof, which opens the connection."""

    proof: bytes


Greeting = Hello | Welcome | Proof

decode_greeting: Callable[[bytes], Greeting] = msgpack_decoder(Greeting)
