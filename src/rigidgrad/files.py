"""Files that nobody vouches for: only regular ones of bounded size are read, and arrays never run
code.
"""

from __future__ import annotations

import os
import stat
import warnings
import zipfile
from io import BytesIO
from math import prod
from typing import IO, Any

import numpy as np

from rigidgrad.errors import InputError

MAX_ARRAY_BYTES = 1 << 30  # of all arrays in a file, uncompressed
_MAGIC = b"\x93NUMPY"


class Unreadable(InputError):
    """A file that is not there, not a regular one, not permitted, or too large; the message says
    which, without the file's name.
    """


def file_name(path: Any) -> str:
    """A path as text."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise InputError(f"a path is a str or an os.PathLike, not {type(path).__name__}") from None


def read_regular(path: Any, most: int) -> bytes:
    """What is in a regular file of at most `most` bytes; pipes, devices and directories are refused
    unread.
    """
    name = file_name(path)
    try:
        _check_regular(os.stat(name), most)
        # what the name stands for may change after stat: never block, and look again at what was
        # opened
        with open(name, "rb", opener=_open_without_waiting) as file:
            _check_regular(os.fstat(file.fileno()), most)
            data = file.read(most + 1)
    except Unreadable:
        raise
    except FileNotFoundError:
        raise Unreadable("there is no such file; check the path") from None
    except PermissionError:
        raise Unreadable("it may not be read; check its permissions") from None
    except (OSError, ValueError) as error:  # a ValueError is a NUL or a lone surrogate in the path
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise Unreadable(f"it cannot be read ({reason}); check the path") from None
    if data is None:
        raise Unreadable("it has nothing to read yet; save it as a regular file first")
    _check_size(len(data), most)
    return data


def check_regular(path: Any, most: int) -> None:
    """Refuses what `read_regular` would refuse to open; a file that is not there passes."""
    try:
        _check_regular(os.stat(path), most)
    except (OSError, ValueError) as error:
        if isinstance(error, Unreadable):
            raise


def _open_without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _check_regular(status: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable("this is a directory; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(
            "this is not a regular file but a device, pipe or socket; save it as a file first"
        )
    _check_size(status.st_size, most)


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise Unreadable(f"this is larger than {most >> 20} MB; is it the right file?")


# --- arrays ---------------------------------------------------------------------------------------


def read_arrays(path: Any) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name, or that of an .npy file as {"": array}: numbers and
    texts, never Python objects, which could run code.
    """
    shown = repr(file_name(path))
    try:
        data = read_regular(path, MAX_ARRAY_BYTES)
    except Unreadable as reason:
        raise InputError(f"{shown} is no .npz or .npy file that can be read: {reason}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy, about headers that Python 2 wrote
            return _arrays(data)
    except InputError as reason:
        raise InputError(f"{shown} is no .npz or .npy file that can be read: {reason}") from None
    except Exception as error:  # whatever zipfile, zlib and NumPy make of damaged bytes
        raise InputError(
            f"{shown} is no .npz or .npy file that can be read: it is damaged, or something else"
            f" ({type(error).__name__})"
        ) from None


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    if data.startswith(_MAGIC):
        return {"": _array(BytesIO(data))}
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(BytesIO(data)) as archive:
        entries = archive.infolist()
        if sum(e.file_size for e in entries) > MAX_ARRAY_BYTES:
            raise InputError(f"its arrays take more than {MAX_ARRAY_BYTES >> 20} MB")
        for entry in entries:
            # other ways to compress have no bound on what one block gives
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError("it is compressed in a way that NumPy does not write")
            with archive.open(entry) as file:
                found[entry.filename.removesuffix(".npy")] = _array(file)
    return found


def _array(file: IO[bytes]) -> np.ndarray:
    """One array, which fills its file: a header alone cannot make us take memory."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise InputError("its arrays are of a newer kind than numbers need")
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, by_columns, dtype = read_header(file)
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise InputError(
            "it holds Python objects, which are not read because they can run code; save plain"
            " arrays of numbers"
        )
    content = file.read()
    if len(content) != prod(shape) * dtype.itemsize:
        raise InputError("its arrays are incomplete")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C").copy()


def numbers_in(name: str, array: np.ndarray) -> np.ndarray:
    """A named array of a file as float64; texts, dates and complex numbers are refused."""
    if array.dtype.kind not in "biuf":
        raise InputError(f"its array {name!r} holds no numbers")
    return array.astype(float)
