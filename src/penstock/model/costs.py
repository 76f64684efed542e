"""Costs: what an engine takes beside the work that components declare, and what components were measured to take.

The twin charges them; `penstock calibrate` measures them on a running cluster and writes them to a file. All default to
nothing, which is what emulated machines charge: there only declared work counts, and the engine's own is the host's.
"""

from penstock.model.entity import Count, Entity, Name, NonNegative
from penstock.model.topology import Application, ServiceTime


class ComponentCosts(Entity, frozen=True):
    """What a component's tuples were measured to take."""

    cpu: NonNegative  # core-seconds a tuple on a core of speed 1
    service: ServiceTime = ServiceTime()


class StreamCosts(Entity, frozen=True):
    """What a stream was measured to carry."""

    selectivity: NonNegative
    tuple_bytes: NonNegative


class Costs(Entity, frozen=True):
    """What tuples, frames and moves take. Seconds are a core's of speed 1."""

    hop_cpu: NonNegative = 0.0  # s a tuple that is taken from a queue
    send_cpu: NonNegative = 0.0  # s a tuple that leaves its process, at the sender: serialisation
    send_byte_cpu: NonNegative = 0.0  # and a byte of it
    receive_cpu: NonNegative = 0.0  # s a tuple that comes from another process, at the receiver
    receive_byte_cpu: NonNegative = 0.0  # and a byte of it
    frame_bytes: NonNegative = 0.0  # on the wire, beside the tuples
    delay_variation: NonNegative = 0.0  # standard deviation over mean of the delay to another host, or on a link
    window: Count = 1024  # tuples that a channel may have under way
    in_flight: Count | None = None  # source tuples that a source task may have under way; None: no limit
    move_s: NonNegative = 0.0  # that a task stands still while it moves
    components: dict[Name, ComponentCosts] = {}
    streams: dict[str, StreamCosts] = {}  # by label, `source->target`

    def applied(self, application: Application) -> Application:
        """Return an application with what was measured in place of what it declares."""
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
