"""Kimi K3 on Ascend NPUs, exact on a plain CPU.

Importing this package imports neither torch nor anything that touches a device; the names below do when first used.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from ascend_k3.version import __version__

if TYPE_CHECKING:
    from ascend_k3.checkpoint import convert_checkpoint, load_model, save_model
    from ascend_k3.config import K3Config
    from ascend_k3.doctor import check_checkpoint
    from ascend_k3.generation import generate
    from ascend_k3.model import K3ForConditionalGeneration
    from ascend_k3.ops.errors import BackendError, CheckpointError, NonFiniteError
    from ascend_k3.tokenizer import K3Tokenizer

# With torch comes every device backend that is installed, and torch cannot be imported if one of them is broken, such
# as torch_npu without CANN. Importing this package needs none: an npu device is asked for by name.
if "torch" not in sys.modules:
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

_HOME = {
    "BackendError": "ops.errors",
    "CheckpointError": "ops.errors",
    "K3Config": "config",
    "K3ForConditionalGeneration": "model",
    "K3Tokenizer": "tokenizer",
    "NonFiniteError": "ops.errors",
    "check_checkpoint": "doctor",
    "convert_checkpoint": "checkpoint",
    "generate": "generation",
    "load_model": "checkpoint",
    "save_model": "checkpoint",
}

__all__ = [
    "BackendError",
    "CheckpointError",
    "K3Config",
    "K3ForConditionalGeneration",
    "K3Tokenizer",
    "NonFiniteError",
    "__version__",
    "check_checkpoint",
    "convert_checkpoint",
    "generate",
    "load_model",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name == "ops":
        return importlib.import_module("ascend_k3.ops")
    if name not in _HOME:
        raise AttributeError(f"module 'ascend_k3' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ascend_k3.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
