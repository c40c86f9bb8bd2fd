"""Answers of the engine as values: whole or as a stream, for threads and for asyncio."""

import asyncio
import json
import queue
from typing import Any, AsyncIterator, Iterator, Optional

Json = Any


class RequestError(Exception):
    """A request that was refused or failed.

    Attributes:
        status: the HTTP status that the server would answer with (400 for a bad field).
        param: the field at fault, where there is one.
        code: a word for programs, such as "context_length_exceeded".
    """

    def __init__(self, message: str, status: int, param: Optional[str] = None, code: Optional[str] = None):
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


def check(status: int, body: bytes) -> bytes:
    """The body, or the error that it holds."""
    if status < 300:
        return body
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        raise RequestError(body.decode(errors="replace") or f"the request failed ({status})", status) from None
    raise RequestError(error["message"], status, error.get("param"), error.get("code"))


def events(piece: bytes) -> Iterator[Json]:
    """The data of the server-sent events in a piece of a stream, which holds whole ones."""
    for line in piece.split(b"\n"):
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        data = json.loads(line[len(b"data: "):])
        if isinstance(data, dict) and "error" in data:
            error = data["error"]
            raise RequestError(error["message"], 500, error.get("param"), error.get("code"))
        yield data


def whole(start: Any) -> bytes:
    """Waits for an answer's body. start(callback) begins the request."""
    pieces: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
    exchange = start(lambda status, piece: pieces.put((status, piece)))
    body = b""
    try:
        while True:
            status, piece = pieces.get()
            if piece is None:
                return check(status, body)
            body += piece
    except BaseException:
        exchange.cancel()  # Ctrl-C, for one
        raise


def stream(start: Any) -> Iterator[Json]:
    """An answer's events as they come; ending the iteration ends the request."""
    pieces: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
    exchange = start(lambda status, piece: pieces.put((status, piece)))
    try:
        while True:
            status, piece = pieces.get()
            if piece is None:
                check(status, b"")
                return
            yield from events(check(status, piece))
    finally:
        exchange.cancel()


def _to_loop(pieces: "asyncio.Queue[Any]") -> Any:
    loop = asyncio.get_running_loop()

    def callback(status: int, piece: Optional[bytes]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(pieces.put_nowait, (status, piece))

    return callback


async def async_whole(start: Any) -> bytes:
    """As whole(), for asyncio; cancelling the task ends the request."""
    pieces: "asyncio.Queue[Any]" = asyncio.Queue()
    exchange = start(_to_loop(pieces))
    body = b""
    try:
        while True:
            status, piece = await pieces.get()
            if piece is None:
                return check(status, body)
            body += piece
    except BaseException:
        exchange.cancel()
        raise


async def async_stream(start: Any) -> AsyncIterator[Json]:
    """As stream(), for asyncio."""
    pieces: "asyncio.Queue[Any]" = asyncio.Queue()
    exchange = start(_to_loop(pieces))
    try:
        while True:
            status, piece = await pieces.get()
            if piece is None:
                check(status, b"")
                return
            for event in events(check(status, piece)):
                yield event
    finally:
        exchange.cancel()
