"""SPARCLE's application: faces in the images of a camera, for which both computing and the network are scarce (§V-A).

All figures are Table II's. `cpu` is in giga-cycles, for machines whose speed is in GHz (`field-and-cloud`). The graph
is drawn in a figure that the text lost; the table's order of transports makes it a chain.
"""

from penstock.model.topology import Application, Component, Kind, Stream

GIGACYCLES = {"resize": 9.88, "denoise": 12.8, "detect-edges": 4.826, "detect-faces": 5.658}  # an image
IMAGE_BYTES = (3.1e6, 182e3, 145e3, 188e3, 11e3)  # raw, resized, denoised, edge map, faces


def face_detection(camera: str | None = None, consumer: str | None = None) -> Application:
    """Find faces: camera, resize, denoise, detect-edges, detect-faces, consumer.

    `camera` and `consumer` name the machines to which the two ends are pinned; SPARCLE pins both.
    """
    names = ("camera", *GIGACYCLES, "consumer")
    return Application(
        name="face-detection",
        components=(
            Component(name="camera", kind=Kind.SOURCE, pinned=camera),
            *(Component(name=name, cpu=cycles) for name, cycles in GIGACYCLES.items()),
            Component(name="consumer", kind=Kind.SINK, pinned=consumer),
        ),
        streams=tuple(
            Stream(source=source, target=target, tuple_bytes=size)
            for source, target, size in zip(names[:-1], names[1:], IMAGE_BYTES, strict=True)
        ),
    )
