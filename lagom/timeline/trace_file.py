# SPDX-License-Identifier: Apache-2.0
"""The content of a trace file as people have it: plain, gzip or zip; UTF-8 or not; JSON as profilers really write it.

What can be read without doubt is read. A file that was cut in the middle is refused: the events of a trace are not in
order of time, so what is left of it would give wrong numbers.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

from lagom.errors import LagomError
from lagom.files import open_regular


class TraceError(LagomError):
    """A trace file that is damaged or not in the expected format."""


_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
#: First bytes of formats that hold no trace as they are, what they are called, and what to do; then those of a tar
#: archive, which has its name later.
_UNREADABLE = (
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it with `zstd -d` and give what comes out"),
    (b"BZh", "is compressed by bzip2; unpack it with `bunzip2` and give what comes out"),
    (b"\xfd7zXZ", "is compressed by xz; unpack it with `unxz` and give what comes out"),
    (b"SQLite format 3", "is an SQLite database, as nsys and rocprof export it; give a Kineto trace of torch.profiler"),
    (b"QDSTRM", "is a report of nsys; give a Kineto trace of torch.profiler"),
)
_TAR_AT, _TAR = 257, b"ustar"
#: A file that ends within so many characters of where its JSON stops making sense was cut there.
_CUT_WITHIN = 8
#: Numbers as C++ prints them, between JSON's own signs; and backslashes that JSON does not know (paths of Windows).
_NUMBER_WORDS = re.compile(r"(?<=[:,\[\s])[-+]?(?:nan(?:\(\w*\))?|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_BACKSLASHES = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')


def read_texts(path: Path) -> list[tuple[str, str]]:
    """Name and text of what a file holds: the file itself, unpacked where it is gzip, or the traces of a zip archive.
    Bytes that are no UTF-8 are kept as lone surrogates. Raises :class:`TraceError`."""
    try:
        with open_regular(path) as file:
            raw = file.read()
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}.") from error
    if raw.startswith(_ZIP):
        return [(name, _text(name, content)) for name, content in _members(path, raw)]
    return [(str(path), _text(str(path), raw))]


def _members(path: Path, raw: bytes) -> list[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            names = [name for name in archive.namelist() if name.endswith((".json", ".json.gz"))]
            names = [name for name in names if not Path(name).name.startswith("._")]  # macOS's own
            found = [(f"{path}:{name}", archive.read(name)) for name in sorted(names)]
    except (zipfile.BadZipFile, EOFError, zlib.error, OSError) as error:
        raise TraceError(f"{path} is a damaged zip archive ({error}); copy it again.") from error
    except (RuntimeError, NotImplementedError) as error:  # a password, a method that Python lacks
        raise TraceError(f"{path} is a zip archive that cannot be unpacked here ({error}); unpack it.") from error
    if not found:
        raise TraceError(f"{path} is a zip archive without a .json or .json.gz file; give Kineto traces.")
    return found


def _text(name: str, raw: bytes) -> str:
    if raw.startswith(_GZIP):
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise TraceError(f"{name} is a damaged gzip file ({error}); copy it again.") from error
    if not raw.strip():
        raise TraceError(f"{name} is empty; was the job killed before it wrote its trace?")
    for magic, words in _UNREADABLE:
        if raw.startswith(magic):
            raise TraceError(f"{name} {words}.")
    if raw[_TAR_AT:].startswith(_TAR):
        raise TraceError(f"{name} is a tar archive; unpack it with `tar xf` and give the traces in it.")
    encoding = json.detect_encoding(raw)
    return raw.decode(encoding, errors="surrogateescape" if encoding.startswith("utf-8") else "replace")


def parse_json(name: str, text: str) -> Any:
    """The document in ``text``. What profilers write although JSON does not have it is read: NaN and Infinity in any
    spelling, control characters and single backslashes in strings, an array without its ``]`` (which Chrome's format
    allows). Raises :class:`TraceError`."""
    try:
        try:
            return json.loads(text, strict=False)
        except json.JSONDecodeError as error:
            if error.msg == "Extra data":
                raise
            return json.loads(_repaired(text), strict=False)
    except json.JSONDecodeError as error:
        raise TraceError(f"{name} {_what_is_wrong(error)}") from error
    except (RecursionError, ValueError) as error:
        raise TraceError(
            f"{name} is JSON but no Chrome trace: it is nested too deeply or has numbers of thousands of digits; "
            "give a Kineto trace."
        ) from error


def _repaired(text: str) -> str:
    text = _NUMBER_WORDS.sub("null", text)
    text = _BACKSLASHES.sub(lambda found: found[0] if found[1] else r"\\", text)
    bare = text.strip()
    return f"{bare.rstrip(',')}]" if bare.startswith("[") and bare.endswith(("}", "},")) else text


def _what_is_wrong(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "holds several JSON documents one after another, as `nsys export` writes them; give a Kineto trace."
    if error.pos >= len(error.doc.rstrip()) - _CUT_WITHIN or error.msg.startswith("Unterminated string"):
        return f"is not complete JSON ({error}); was the job killed while writing it? Record or copy it again."
    return f"is not valid JSON ({error}), so it is damaged there; record or copy it again."
