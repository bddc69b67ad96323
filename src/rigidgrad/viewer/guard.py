"""Who is served a live page: who typed its address, not a page from elsewhere that reaches for it.

Any page on the web can make a visitor's browser send requests to 127.0.0.1, and a name of its own
can be made to point there (DNS rebinding). So the server looks at two headers of every request,
HTTP and websocket alike: `Host` must name this machine, and `Origin`, which browsers add and no
page can forge, must be that same address. Of what then arrives on a websocket, messages that are
out of shape are passed over: viser takes them as they are.
"""

from __future__ import annotations

import http
import ipaddress
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rigidgrad.errors import RigidgradError

_LENGTHS = {"position": 3, "wxyz": 4, "look_at": 3, "up_direction": 3}
_patching = threading.Lock()


def refusal(hosts: list[str], origins: list[str], own: frozenset[str]) -> str:
    """Why a request with these Host and Origin headers is refused; empty if it is not. `own`:
    further names of this machine, in lower case.
    """
    if len(hosts) != 1 or len(origins) > 1:
        return "a request has one Host and at most one Origin"
    address = hosts[0].strip().lower()
    name = _name(address)
    if not (name in own or name == "localhost" or _is_numeric(name)):
        return "the Host is no name of this machine; open the page by the address that was printed"
    if origins and origins[0].strip().lower() not in (f"http://{address}", f"https://{address}"):
        return "the Origin is another page; open this one by itself"
    return ""


def own_names(host: str) -> frozenset[str]:
    """What this machine may be called besides localhost and its numbers."""
    short = socket.gethostname()
    names = [host, short, f"{short}.local"]
    if host not in ("127.0.0.1", "::1", "localhost"):
        names.append(socket.getfqdn())
    return frozenset(name.lower() for name in names if name)


@contextmanager
def guarded(own: frozenset[str]) -> Iterator[None]:
    """A viser server that is started inside checks every request.

    viser has no option for it, but stands on `websockets`, whose `serve` takes a function that sees
    every request first: ours is put before viser's. Where a viser starts otherwise, that is an
    error: a page that is not guarded is not served.
    """
    import websockets.asyncio.server as library

    with _patching:
        serve, started = library.serve, []

        def checked_serve(
            handler: Any, *args: Any, process_request: Any = None, **options: Any
        ) -> Any:
            # somebody else's server, on another thread
            if str(getattr(handler, "__module__", "")).partition(".")[0] != "viser":
                return serve(handler, *args, process_request=process_request, **options)
            started.append(handler)
            return serve(
                _filtered(handler), *args, process_request=_checked(process_request, own), **options
            )

        library.serve = checked_serve
        try:
            yield
        finally:
            library.serve = serve
    if not started:
        raise RigidgradError(
            "this version of viser starts its server in another way, so that requests cannot be"
            " checked; html= saves a page"
        )


def _checked(
    process_request: Callable[[Any, Any], Any] | None, own: frozenset[str]
) -> Callable[[Any, Any], Any]:
    def check(connection: Any, request: Any) -> Any:
        reason = refusal(request.headers.get_all("Host"), request.headers.get_all("Origin"), own)
        if reason:
            return connection.respond(http.HTTPStatus.FORBIDDEN, f"refused: {reason}\n")
        return process_request(connection, request) if process_request is not None else None

    return check


def _filtered(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A handler of connections that sees well-formed messages alone."""

    async def handle(connection: Any) -> None:
        receive = connection.recv

        async def recv() -> Any:
            while not well_formed(message := await receive()):
                pass
            return message

        connection.recv = recv
        await handler(connection)

    return handle


def well_formed(message: Any) -> bool:
    """Whether a message of viser's holds finite numbers alone, vectors of the right length, and of
    an input sets no more than its value.
    """
    import msgspec

    try:
        fields = msgspec.msgpack.decode(message)
        lengths = {name: len(fields[name]) for name in _LENGTHS if name in fields}
        return (
            _finite(fields)
            and lengths.items() <= _LENGTHS.items()
            and set(fields.get("updates", ())) <= {"value"}
        )
    except (msgspec.DecodeError, TypeError, AttributeError, RecursionError):
        return False


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _name(address: str) -> str:
    """Of host or host:port, the host; an IPv6 address without its brackets."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0]


def _is_numeric(name: str) -> bool:
    """Numbers cannot be made to point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
