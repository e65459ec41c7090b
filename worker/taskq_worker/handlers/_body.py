"""A response body read up to a limit, whatever it is packed in."""

import codecs
import re
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

# Codecs by allow-list: the name comes from the other side, and Python has slow and odd ones.
_CHARSETS = re.compile(
    r"(utf[-_]?(8|16|32)([-_]?[lb]e)?|(us-)?ascii|iso[-_]?8859[-_]\d{1,2}|latin-?1|(windows-|cp)125\d"
    r"|shift_jis|euc-(jp|kr)|iso-2022-jp|gb(2312|k|18030)|big5|koi8-[ru])",
    re.IGNORECASE,
)
_PACKING_SLACK_BYTES = 65_536
_GZIP_MAGIC = b"\x1f"


class BadBody(Exception):
    """The body is not what its Content-Encoding says."""


@dataclass(frozen=True)
class Body:
    """The kept part of a body, unpacked; `truncated` says that there was more."""

    data: bytes
    truncated: bool

    def text(self, content_type: str) -> str:
        """Decoded by the charset of `content_type` (else UTF-8), errors replaced."""
        match = re.search(r"charset\s*=\s*\"?([\w.-]+)", content_type, re.IGNORECASE)
        charset = match.group(1) if match else "utf-8"
        if not _CHARSETS.fullmatch(charset):
            charset = "utf-8"
        try:
            decoder = codecs.getincrementaldecoder(charset)("replace")
        except LookupError:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Not final when cut: half a character at the end is no error of the server's.
        return decoder.decode(self.data, final=not self.truncated)


async def read_body(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> Body:
    """Unpack `chunks` (as they came over the wire) until `limit` bytes are out or they end.

    `encoding` is the Content-Encoding; gzip and deflate are unpacked, others are kept as they are.
    A chunk is unpacked no further than the limit, so a bomb costs what is kept and no more; what
    comes over the wire is limited too. Raises `BadBody`.
    """
    unpack = _Inflate(encoding) if encoding in {"gzip", "x-gzip", "deflate"} else None
    data = bytearray()
    wire_bytes = 0
    async for chunk in chunks:
        wire_bytes += len(chunk)
        room = limit + 1 - len(data)
        data += chunk[:room] if unpack is None else unpack.feed(chunk, room)
        if len(data) > limit or wire_bytes > limit + _PACKING_SLACK_BYTES:
            return Body(bytes(data[:limit]), truncated=True)
    if unpack is not None and wire_bytes and not unpack.complete:
        raise BadBody("the compressed body ends early")
    return Body(bytes(data), truncated=False)


class _Inflate:
    """gzip (also of several members) and deflate, with bounded output."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding != "deflate"
        self._wbits = zlib.MAX_WBITS | 16 if self._gzip else zlib.MAX_WBITS
        self._stream = zlib.decompressobj(self._wbits)
        self._first = True

    @property
    def complete(self) -> bool:
        """Whether the packed stream has reached its end."""
        return self._stream.eof

    def feed(self, chunk: bytes, room: int) -> bytes:
        """At most `room` bytes; when there are fewer, all of `chunk` has been used."""
        out = bytearray()
        while chunk and len(out) < room:
            if self._stream.eof:
                if not (self._gzip and chunk.startswith(_GZIP_MAGIC)):
                    break  # padding after the end, which everybody ignores
                self._stream = zlib.decompressobj(self._wbits)
            out += self._decompress(chunk, room - len(out))
            chunk = self._stream.unused_data
        return bytes(out)

    def _decompress(self, chunk: bytes, room: int) -> bytes:
        first, self._first = self._first, False
        try:
            return self._stream.decompress(chunk, room)
        except zlib.error:
            if not first or self._gzip:
                raise BadBody("the compressed body is damaged") from None
        # Some servers send deflate without the zlib header that RFC 9110 asks for.
        self._wbits = -zlib.MAX_WBITS
        self._stream = zlib.decompressobj(self._wbits)
        return self._decompress(chunk, room)
