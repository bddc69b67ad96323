"""A client of a live page that says what a page from elsewhere, or a hostile browser, could say."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from browser import eventually


@contextmanager
def connected(stage: Any, **headers: Any):
    """A websocket to a stage, as its page opens one; `send(type, **fields)` is a message of
    viser's.
    """
    import msgspec
    import viser
    from websockets.sync.client import connect

    options: dict[str, Any] = {
        "subprotocols": [f"viser-v{viser.__version__}"],
        "compression": None,
        "max_size": None,
    }
    with connect(f"ws://127.0.0.1:{stage.port}", **options, **headers) as socket:

        def send(kind: str, **fields: Any) -> None:
            socket.send(msgspec.msgpack.encode({"type": kind, **fields}))

        # viser takes a client for connected once it has a camera
        where = {
            "wxyz": (1, 0, 0, 0),
            "position": (1, 0, 0),
            "look_at": (0, 0, 0),
            "up_direction": (0, 0, 1),
        }
        send(
            "ViewerCameraMessage",
            fov=1.0,
            near=0.1,
            far=10.0,
            image_height=100,
            image_width=100,
            **where,
        )
        eventually(lambda: stage.watched, "connected")
        yield send


def set_value(send: Any, handle: Any, value: Any) -> None:
    """What a slider, checkbox or dropdown of the page sends."""
    send("GuiUpdateMessage", uuid=handle._impl.uuid, updates={"value": value})
