"""SPARCLE's application: face detection in the images of a camera, which needs much computation and bandwidth (§V-A).

All figures are from Table II. `cpu` is in giga-cycles, for machines whose speed is in GHz (`field-and-cloud`). The text
has lost the figure with the graph; the table's order of transports makes it a chain.
"""

from penstock.model.topology import Application, Component, Kind, Stream

GIGACYCLES = {"resize": 9.88, "denoise": 12.8, "detect-edges": 4.826, "detect-faces": 5.658}  # per image
IMAGE_BYTES = (3.1e6, 182e3, 145e3, 188e3, 11e3)  # raw, resized, denoised, edge map, faces


def face_detection(camera: str | None = None, consumer: str | None = None) -> Application:
    """Detect faces: camera, resize, denoise, detect-edges, detect-faces, consumer.

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
