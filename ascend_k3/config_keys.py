"""The keys of a config.json, taken one by one, checked for presence and type; and values as messages show them."""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ascend_k3.ops.errors import CheckpointError

# Keys without influence on what the model computes: kept, and written back unchanged.
METADATA = frozenset(
    "architectures auto_map dtype torch_dtype transformers_version initializer_range use_cache model_type "
    "_name_or_path _attn_implementation ignore_index id2label label2id".split()
)

SHOWN_ITEMS = 8  # of a list, in a message
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlist = SHOWN_ITEMS


class Keys:
    """The keys of one JSON object, taken one by one; what remains must be metadata."""

    def __init__(self, data: Any, where: str) -> None:
        """`where` is the object's name in messages."""
        if not isinstance(data, Mapping):
            raise CheckpointError(f"{where} must be a JSON object, got {type(data).__name__}.")
        self.left = dict(data)
        self.where = where

    def take(self, key: str) -> Any:
        """A value that must be there."""
        if key not in self.left:
            raise CheckpointError(
                f"{self.where}.{key} is missing; it changes what the model computes, so it is not guessed: "
                "take it from the config.json of the release this checkpoint was made from."
            )
        return self.left.pop(key)

    def take_as(self, key: str, wanted: type) -> Any:
        """A value that must be there and be of type `wanted`, int or str."""
        value = self.take(key)
        if not isinstance(value, wanted) or (wanted is int and not _is_number(value)):
            raise CheckpointError(f"{self.where}.{key} must be of type {wanted.__name__}, got {shown(value)}.")
        return value

    def take_optional(self, key: str) -> Any:
        """A value, or None if it is null or not there."""
        return self.left.pop(key, None)

    def require(self, values: Mapping[str, Any]) -> None:
        """Take keys that have one possible value each."""
        for key, wanted in values.items():
            found = self.take(key)
            if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
                raise CheckpointError(
                    f"{self.where}.{key} is {shown(found)}; Kimi K3 has {wanted!r}, and nothing else is built."
                )

    def fill(self, cls: type, skip: tuple[str, ...] = ()) -> dict[str, Any]:
        """Take every field of dataclass `cls` but those in `skip`, checked for its type."""
        values = {}
        for item in fields(cls):
            if item.name in skip or item.name == "metadata":
                continue
            value = self.take(item.name)
            wanted = (int, float) if item.type == "float" else (int,)
            if not isinstance(value, wanted) or not _is_number(value):
                raise CheckpointError(f"{self.where}.{item.name} must be of type {item.type}, got {shown(value)}.")
            values[item.name] = value
        return values

    def metadata(self) -> dict[str, Any]:
        """A copy of what remains."""
        unknown = sorted(set(self.left) - METADATA)
        if unknown:
            raise CheckpointError(
                f"{self.where}.{unknown[0]} is not a key of Kimi K3 and could change what the model computes "
                f"(its value is {shown(self.left[unknown[0]])}); remove it if it does not."
            )
        try:
            return copy.deepcopy(self.left)
        except RecursionError as error:
            raise CheckpointError(f"{self.where} has values that are nested too deeply: download it again.") from error


def _is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number that 64 bits hold."""
    if isinstance(value, bool):
        return False
    return -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, float) and math.isfinite(value)


def shown(value: Any) -> str:
    """A value as a message shows it: its repr, cut short where it is long."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no integer of more than 4300 digits
        return f"one of type {type(value).__name__} that is too long to be shown"
