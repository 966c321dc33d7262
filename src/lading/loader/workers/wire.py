"""Turn any object into a pickle stream and buffers beside it, and back without copying the buffers.

    {"x": tensor, "label": "a"}  ─▶  stream (some hundred bytes)  +  [memory of the tensor]

Arrays and tensors leave their memory out of the stream (pickle protocol 5);
whatever else can be pickled travels inside it. Torch is looked up, never
imported: a process without torch has no tensors to send.
"""

from __future__ import annotations

import copyreg
import importlib
import io
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

PROTOCOL = 5
_PLAIN_KINDS = "biufc"
# Tensors of these types are NumPy arrays as they are; the others (bfloat16, float8, ...) are viewed as bytes.
_NUMPY_HAS = {
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip


def pack(value: Any) -> tuple[memoryview, list[memoryview]]:
    """Return the pickle stream of an object, and the memory of its arrays and tensors beside it."""
    _know_tensors()
    stream, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
    _Pickler(stream, PROTOCOL, buffer_callback=buffers.append).dump(value)
    return stream.getbuffer(), [buffer.raw() for buffer in buffers]


def pack_whole(value: Any) -> bytes:
    """Return the pickle stream of an object, its arrays and tensors inside."""
    _know_tensors()
    stream = io.BytesIO()
    _Pickler(stream, PROTOCOL).dump(value)
    return stream.getvalue()


def unpack(stream: Any, buffers: Iterable[Any] = ()) -> Any:
    """Return the object; its arrays and tensors lie in the buffers."""
    return pickle.loads(stream, buffers=buffers)


class _Reducers(dict[type, Callable[[Any], Any]]):
    """Our reducers first, then those registered with ``copyreg``."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        return copyreg.dispatch_table[kind]


def _reduce_array(array: Any) -> Any:
    flags = array.flags
    if not flags.writeable:  # the reader may write into what it was given, as it may with torch's workers
        array = array.copy("A")
        flags = array.flags
    if array.dtype.kind not in _PLAIN_KINDS or (flags.f_contiguous and not flags.c_contiguous):
        return array.__reduce_ex__(PROTOCOL)
    if not flags.c_contiguous:
        array = array.copy("C")
    return _array, (pickle.PickleBuffer(array), array.dtype.str, array.shape)


def _array(buffer: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.ndarray(shape, dtype, buffer=buffer)


_REDUCERS = _Reducers({np.ndarray: _reduce_array})


class _Pickler(pickle.Pickler):
    dispatch_table = _REDUCERS


def _know_tensors() -> None:
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    if kind is not None and kind not in _REDUCERS:
        _REDUCERS[kind] = _tensor_reducer(torch)


def _tensor_reducer(torch: Any) -> Callable[[Any], Any]:
    names = {d: str(d).removeprefix("torch.") for d in vars(torch).values() if isinstance(d, torch.dtype)}

    def reduce(tensor: Any) -> Any:
        name = names.get(tensor.dtype)
        is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_nested
        if not is_plain or name is None or tensor.is_quantized or tensor.requires_grad or tensor.__dict__:
            return tensor.__reduce_ex__(PROTOCOL)
        plain, axes = _in_row_order(tensor)
        bits = plain.numpy() if name in _NUMPY_HAS else plain.reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(bits), name, tuple(plain.shape), axes)

    return reduce


def _in_row_order(tensor: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Return the tensor with its elements one after another, and how to turn its dimensions back (channels last)."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor, None
    tensor = tensor.resolve_conj().resolve_neg()
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    turned = tensor.permute(order)
    if not turned.is_contiguous():
        return tensor.contiguous(), None
    return turned, tuple(order.index(d) for d in range(tensor.dim()))


def _tensor(buffer: Any, name: str, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> Any:
    torch = sys.modules.get("torch") or importlib.import_module("torch")
    dtype = getattr(torch, name)
    if 0 in shape:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        tensor = torch.frombuffer(buffer, dtype=dtype).view(shape)
    return tensor if axes is None else tensor.permute(axes)
