"""The opening of a connection: each end says who it is, and proves that it knows the run's secret."""

from collections.abc import Callable

from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol.wire import Wire

PROTOCOL = 4


class Hello(Wire, tag=10):
    """The first message on a connection: who calls, and a number for the other to prove itself with."""

    protocol: int
    run: str
    worker: int
    incarnation: int
    nonce: bytes
    heart: bool = False  # a connection to the controller that carries heartbeats only
    protects: bool = False  # every frame after the greeting carries a keyed checksum
    token: bytes = b""  # shows that the caller knows the secret; may be replayed, so that it only sets a priority


class Welcome(Wire, tag=11):
    """The answer: proof of the secret, and a number to prove it with in turn."""

    proof: bytes
    nonce: bytes


class Proof(Wire, tag=12):
    """The caller's proof; after it the connection is open."""

    proof: bytes


Greeting = Hello | Welcome | Proof

decode_greeting: Callable[[bytes], Greeting] = msgpack_decoder(Greeting)
