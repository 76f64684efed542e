"""Costs: the engine's overhead beside the work that components declare, and the measured work of components.

The twin charges them; `penstock sim calibrate` measures them on a running cluster and writes them to a file. They
default to zero, which is what emulated machines charge: only declared work counts there, the overhead is the host's.
"""

from penstock.model.entity import Count, Entity, Name, NonNegative
from penstock.model.topology import Application, ServiceTime


class ComponentCosts(Entity, frozen=True):
    """The measured cost of a component's tuples."""

    cpu: NonNegative  # core-seconds per tuple on a core of speed 1
    service: ServiceTime = ServiceTime()


class StreamCosts(Entity, frozen=True):
    """The measured traffic of a stream."""

    selectivity: NonNegative
    tuple_bytes: NonNegative


class Costs(Entity, frozen=True):
    """The costs of tuples, frames and moves. Seconds are of a core of speed 1."""

    hop_cpu: NonNegative = 0.0  # s per tuple taken from a queue
    send_cpu: NonNegative = 0.0  # s per tuple that leaves its process, at the sender: serialisation
    send_byte_cpu: NonNegative = 0.0  # s per byte of it
    receive_cpu: NonNegative = 0.0  # s per tuple received from another process, at the receiver
    receive_byte_cpu: NonNegative = 0.0  # s per byte of it
    frame_bytes: NonNegative = 0.0  # on the wire, in addition to the tuples
    delay_variation: NonNegative = 0.0  # standard deviation over mean of the delay to another host, or on a link
    window: Count = 1024  # maximum tuples in flight per channel
    in_flight: Count | None = None  # maximum source tuples in flight per source task; None: no limit
    move_s: NonNegative = 0.0  # s for which a task is suspended while it moves
    components: dict[Name, ComponentCosts] = {}
    streams: dict[str, StreamCosts] = {}  # by label, `source->target`

    def applied(self, application: Application) -> Application:
        """Return the application with measured values in place of declared ones."""
        import msgspec

        components = tuple(
            msgspec.structs.replace(one, cpu=found.cpu, service=found.service)
            if (found := self.components.get(one.name)) is not None
            else one
            for one in application.components
        )
        streams = tuple(
            msgspec.structs.replace(one, selectivity=seen.selectivity, tuple_bytes=seen.tuple_bytes)
            if (seen := self.streams.get(one.label)) is not None
            else one
            for one in application.streams
        )
        return msgspec.structs.replace(application, components=components, streams=streams)
