"""Images: from files, bytes, URIs and chat messages to the patches, grids and prompts that the model takes.

The rules are those of the released image processor, whose result they equal bit for bit:

    scale  = min(1, sqrt(65536 / (max(1, W // 14) * max(1, H // 14))), 7168 / W, 7168 / H)
    size   = int(W * scale), int(H * scale)          never larger than the image
    pixels = resize (Pillow's BICUBIC, alpha kept), then alpha over a chessboard, then zeros on the right and at the
             bottom up to multiples of 28, then (x / 255 - 0.5) / 0.5

Three consequences are worth knowing. The 65536 patches are counted before padding, so that a grid may have a few more.
Pillow resizes palette and 1-bit images by nearest neighbour, whatever it is asked for. And an orientation in EXIF is
left alone, as there: an image enters as it is stored, and so does its size in the prompt.

Six kinds of images are refused that the release takes without a word: several frames in one file (it takes the
first), more than 8 bits a channel (Pillow clips them), a strip so thin that truncation leaves nothing of it (it takes
one pixel of it), CMYK (it converts without the colour profile), modes that hardly any file has (LAB, PA), and a file or
data URI whose extension or media type names another format than its content has (it goes by the content).

Frames go further than the release, whose processor takes none while its tower takes up to 4 as one medium: their
pixels follow the rules for images, and their prompt is that of an image of their size, which is a choice of this
program.
"""

from __future__ import annotations

import base64
import binascii
import math
import stat
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib import request
from urllib.parse import unquote_to_bytes, urlsplit

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from ascend_k3.chat import order_tool_results
from ascend_k3.vision import MERGE, Grid

Source = str | Path | bytes | Image.Image
Medium = Image.Image | list[Image.Image] | tuple[Image.Image, ...]  # an image, or frames of one size

# preprocessor_config.json of the release
PATCH = 14  # pixels along each side
PATCH_LIMIT = 65536  # of an image, before padding
SIDE_LIMIT = 512  # patches along each side
SQUARE, WHITE, GRAY = 8, 255, 180  # the chessboard behind transparent images; white at the top left
MEAN = DEVIATION = 0.5
FRAME_LIMIT = 4  # init_pos_emb_time of the tower

# Limits of this program; the release has none.
PIXEL_LIMIT = 89_478_485  # where Pillow starts to warn of decompression bombs: 256 MiB at 3 bytes a pixel
BYTE_LIMIT = 256 * 2**20  # of an encoded image: those pixels without any compression
REMOTE_WAIT, REMOTE_SECONDS = 10.0, 60.0  # for one answer of a server, and for the whole of an image

# The formats of photographs and screenshots. Pillow knows more; some of those start other programs (EPS).
FORMATS = {
    "AVIF": ".avif",
    "BMP": ".bmp",
    "GIF": ".gif",
    "JPEG": ".jpg",
    "JPEG2000": ".jp2",
    "PNG": ".png",
    "PPM": ".ppm",
    "TIFF": ".tiff",
    "WEBP": ".webp",
}
SAME_FORMAT = {"MPO": "JPEG", "DIB": "BMP"}  # two to Pillow: a JPEG with more behind it, a BMP without its head
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "RGBX", "YCbCr", "HSV")  # of Pillow, 8 bits a channel or less


@dataclass(frozen=True, kw_only=True, slots=True)
class ResizePlan:
    """What becomes of an image of some size: pixels after scaling, zeros added, and tokens of the text model."""

    new_width: int
    new_height: int
    pad_width: int
    pad_height: int

    @property
    def grid(self) -> Grid:
        """Frames, rows and columns of patches."""
        return 1, (self.new_height + self.pad_height) // PATCH, (self.new_width + self.pad_width) // PATCH

    @property
    def num_tokens(self) -> int:
        return tokens_of(self.grid)


def load_image(source: Source, *, allow_remote: bool = False) -> Image.Image:
    """An image in memory, as it is stored: no conversion, no rotation.

    Its content decides the format. The extension of a file and the media type of a data URI may be absent or unknown
    to Pillow, but not those of another format.

    Args:
        source: a path, a `file:`, `data:` (base64), `http:` or `https:` URI, the bytes of a file, or a Pillow image.
        allow_remote: fetch http and https, redirections included. Whoever chooses the address then chooses what this
            machine connects to, in its own network too.
    Raises: ValueError, one sentence, for what is refused, cannot be read or is damaged.
    """
    if isinstance(source, Image.Image):
        name, image = "the Pillow image", source
        _check(image, name)
        _decode(image, name)
        return image
    name = _name(source)
    data = _read(source, name, allow_remote)
    if len(data) > BYTE_LIMIT:
        raise ValueError(_too_many_bytes(name, len(data)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(BytesIO(data), formats=tuple(FORMATS))
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{name}: it has more than {PIXEL_LIMIT} pixels, the most that is decoded: scale it down."
        ) from error
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{name}: its {len(data)} bytes do not open as an image; they must be {', '.join(FORMATS)}, not cut off "
            "and not 0 pixels wide or high."
        ) from error
    except Exception as error:  # decoders raise whatever they stumble over: OSError, SyntaxError, struct.error, ...
        raise ValueError(_damaged(name, error)) from error
    _check_claim(_claim(source, name), image, name)
    _check(image, name)
    _decode(image, name)
    return image


def collect_images(messages: Sequence[Mapping[str, Any]], *, allow_remote: bool = False) -> list[Medium]:
    """The images of a conversation, loaded, in the order in which `chat.render` shows them.

    Content items are {"type": "image_url", "image_url": {"url": ...} or a text} and {"type": "image", "image": ...}
    with any source of `load_image`, or a list of them: the frames of one medium, which are collected as a list. So
    `render(messages, image_prompts=media_prompts(images))` and `preprocess_batch(images)` fit.

    Raises: ValueError naming the message for an item without an image, an image that `load_image` refuses, or frames
        that are too many or of different sizes.
    """
    images: list[Medium] = []
    for number, message in enumerate(order_tool_results(messages)):
        content = message.get("content")
        if isinstance(content, str) or not isinstance(content, Sequence):
            continue
        for place, item in enumerate(content):
            kind = item.get("type") if isinstance(item, Mapping) else None
            if kind not in ("image", "image_url"):
                continue
            source = item.get(kind)
            if isinstance(source, Mapping):
                source = source.get("url")
            where = f"message {number} ({message.get('role')}), content item {place}"
            if source is None:
                raise ValueError(f"{where}: it is of type {kind} and has no {kind!r}; give a path, a URI or an image.")
            several = kind == "image" and isinstance(source, list | tuple)
            sources = source if several else [source]
            _check_frame_count(len(sources), where)
            try:
                frames = [load_image(frame, allow_remote=allow_remote) for frame in sources]
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            _check_frame_sizes(frames, where)
            images.append(frames if several else frames[0])
    return images


def resize_plan(width: int, height: int) -> ResizePlan:
    """The size rule of the module's docstring.

    Raises: ValueError for a side of 0, before or after scaling.
    """
    if width < 1 or height < 1:
        raise ValueError(f"{width} x {height} pixels are no image; both sides must be at least 1.")
    side = SIDE_LIMIT * PATCH
    patches = max(1.0, width // PATCH) * max(1.0, height // PATCH)
    scale = min(1.0, math.sqrt(PATCH_LIMIT / patches), side / width, side / height)
    new_width, new_height = int(width * scale), int(height * scale)
    if new_width < 1 or new_height < 1:
        raise ValueError(
            f"{width} x {height} pixels become {new_width} x {new_height} when the longer side is scaled to its limit "
            f"of {side} pixels ({SIDE_LIMIT} patches of {PATCH}); crop the image, or cut it into several."
        )
    factor = MERGE * PATCH
    return ResizePlan(
        new_width=new_width, new_height=new_height, pad_width=-new_width % factor, pad_height=-new_height % factor
    )


def preprocess(image: Image.Image) -> tuple[Tensor, Grid]:
    """Patches [h * w, 3, 14, 14] float32, row by row, in [-1, 1], and their grid (1, h, w).

    Raises: ValueError for an image that `load_image` would refuse.
    """
    return _preprocess(image, "preprocess: the image")


def preprocess_batch(images: Iterable[Medium]) -> tuple[Tensor, Tensor]:
    """`preprocess` of images and `preprocess_frames` of lists of them, one medium after another: pixel_values
    [n, 3, 14, 14] float32 and grid_thws [m, 3] int64."""
    media = []
    for number, image in enumerate(images):
        name = f"preprocess_batch: image {number}"
        media.append(_frames(image, name) if isinstance(image, list | tuple) else _preprocess(image, name))
    return _pack(media)


def preprocess_frames(frames: Iterable[Image.Image]) -> tuple[Tensor, Grid]:
    """One medium of 1 to 4 frames of one size: patches [t * h * w, 3, 14, 14] float32, frame by frame, and (t, h, w).

    Each frame follows the rules for images. The medium has as many tokens as one of its frames. One frame alone is the
    image, and two that are alike are not, since the tower tells it the time of each.

    Raises: ValueError for no frames, too many or of different sizes, or one that `load_image` would refuse.
    """
    return _frames(list(frames), "preprocess_frames")


def image_prompt(width: int, height: int) -> str:
    """The text that stands for an image of this size in a prompt, for `chat.render`: its size is the original one."""
    if width < 1 or height < 1:
        raise ValueError(f"image_prompt: {width} x {height} is no size of an image; both sides must be at least 1.")
    return f"<|media_begin|>image {width}x{height}<|media_content|><|media_pad|><|media_end|>"


def media_prompts(media: Iterable[Medium]) -> list[str]:
    """`image_prompt` of each image, and of the first of each list of frames."""
    prompts = []
    for number, medium in enumerate(media):
        frames = medium if isinstance(medium, list | tuple) else [medium]
        _check_frame_count(len(frames), f"media_prompts: image {number}")
        prompts.append(image_prompt(frames[0].width, frames[0].height))
    return prompts


def tokens_of(grid: Sequence[int]) -> int:
    """Tokens of one medium (t, h, w): groups of 2 x 2 patches, frames averaged."""
    _, rows, columns = grid
    return rows // MERGE * (columns // MERGE)


def expand_pads(ids: Sequence[int], grids: Tensor | Iterable[Sequence[int]], pad_id: int) -> list[int]:
    """Token ids with each pad, one for each medium (t, h, w), repeated for each of its tokens, as engines take them.

    Raises: ValueError unless there are as many pads as media.
    """
    counts = [tokens_of(grid) for grid in (grids.tolist() if isinstance(grids, Tensor) else grids)]
    pads = sum(token == pad_id for token in ids)
    if pads != len(counts):
        raise ValueError(
            f"expand_pads: the ids have {pads} pads (id {pad_id}) and there are {len(counts)} images; "
            "a prompt must have one pad for each image."
        )
    remaining = iter(counts)
    return [copy for token in ids for copy in ([token] * next(remaining) if token == pad_id else [token])]


# Pixels


def _preprocess(image: Image.Image, name: str) -> tuple[Tensor, Grid]:
    if not isinstance(image, Image.Image):
        raise ValueError(f"{name} must be a Pillow image, got {type(image).__name__}; `load_image` makes one.")
    plan = _check(image, name)
    _decode(image, name)
    image = image.resize((plan.new_width, plan.new_height), Image.Resampling.BICUBIC)
    _, rows, columns = plan.grid
    canvas = np.zeros((rows * PATCH, columns * PATCH, 3), dtype=np.uint8)
    canvas[: plan.new_height, : plan.new_width] = _flattened(image)
    patches = canvas.reshape(rows, PATCH, columns, PATCH, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, PATCH, PATCH)
    pixels = torch.from_numpy(patches).to(torch.float32)
    return pixels.div_(255).sub_(MEAN).div_(DEVIATION), plan.grid


def _frames(frames: Sequence[Image.Image], name: str) -> tuple[Tensor, Grid]:
    _check_frame_count(len(frames), name)
    media = [_preprocess(frame, f"{name}: frame {number}") for number, frame in enumerate(frames)]
    _check_frame_sizes(frames, name)
    _, rows, columns = media[0][1]
    return torch.cat([patches for patches, _ in media]), (len(frames), rows, columns)


def _flattened(image: Image.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """[H, W, 3]: the colours, and where the image has transparency, its mixture with the chessboard, rounded down."""
    # An RGB file may name a transparent colour; the release leaves it alone, and so does this.
    transparent = "A" in image.getbands() or "transparency" in image.info
    if image.mode == "RGB" or not transparent:
        return np.asarray(image.convert("RGB"))
    rgba = np.asarray(image.convert("RGBA"))
    row, column = np.ogrid[: image.height, : image.width]
    odd = (row // SQUARE + column // SQUARE) % 2 == 1
    chessboard = np.where(odd, np.uint8(GRAY), np.uint8(WHITE))[..., None]
    alpha = rgba[..., 3:].astype(np.float32) / np.float32(255)
    return (alpha * rgba[..., :3] + (1 - alpha) * chessboard).astype(np.uint8)


def _pack(media: list[tuple[Tensor, Grid]]) -> tuple[Tensor, Tensor]:
    pixels = torch.cat([torch.empty(0, 3, PATCH, PATCH), *(patches for patches, _ in media)])
    return pixels, torch.tensor([grid for _, grid in media], dtype=torch.int64).view(-1, 3)


# Reading and refusing


def _check(image: Image.Image, name: str) -> ResizePlan:
    """Refuse what has no place in the rules, from the image's header alone."""
    try:
        plan = resize_plan(*image.size)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if image.width * image.height > PIXEL_LIMIT:
        raise ValueError(f"{name}: it has {_size(image)} pixels; at most {PIXEL_LIMIT} are decoded: scale it down.")
    try:
        several = bool(getattr(image, "is_animated", False))
    except Exception as error:  # as in load_image: damage may show in the search for a second frame
        raise ValueError(_damaged(name, error)) from error
    # A JPEG with a preview or a second exposure behind it is MPO to Pillow; what it shows is the first image.
    if several and image.format != "MPO":
        raise ValueError(
            f"{name}: it has several frames or pages; only still images are taken: save one of them alone."
        )
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        raise ValueError(
            f"{name}: it has more than 8 bits a channel (mode {image.mode}), and how they map to 0 to 255 is not "
            "defined; convert it to 8 bits."
        )
    if image.mode == "CMYK":
        raise ValueError(
            f"{name}: its mode is CMYK, whose values mean nothing without a colour profile; convert it to RGB first."
        )
    if image.mode not in MODES:
        raise ValueError(f"{name}: its mode is {image.mode}; it must be one of {', '.join(MODES)}: convert it to RGB.")
    return plan


def _check_frame_count(count: int, name: str) -> None:
    if not 1 <= count <= FRAME_LIMIT:
        raise ValueError(f"{name}: got {count} frames; a medium has 1 to {FRAME_LIMIT}, so split it.")


def _check_frame_sizes(frames: Sequence[Image.Image], name: str) -> None:
    for number, frame in enumerate(frames):
        if frame.size != frames[0].size:
            raise ValueError(
                f"{name}: frame {number} has {_size(frame)} pixels and frame 0 has {_size(frames[0])}; "
                "the frames of a medium must have one size, so scale or crop them."
            )


def _claim(source: object, name: str) -> str:
    """The extension of a file (.png) or the media type of a data URI (image/png), in lower case; else empty."""
    scheme = _scheme(source) if isinstance(source, str) else ""
    if isinstance(source, str) and scheme == "data":
        return source[len("data:") :].partition(",")[0].partition(";")[0].strip().lower()
    if isinstance(source, str) and scheme == "file":
        return _path_of(source, name).suffix.lower()
    return Path(source).suffix.lower() if isinstance(source, str | Path) and not scheme else ""


def _check_claim(claim: str, image: Image.Image, name: str) -> None:
    """Refuse a name that Pillow knows for another format; image/jpg and the like go by the extension in them."""
    extensions = Image.registered_extensions()
    types = {media_type: format for format, media_type in Image.MIME.items()}
    claimed = extensions.get(claim) or types.get(claim) or extensions.get("." + claim.removeprefix("image/"))
    found = SAME_FORMAT.get(image.format or "", image.format)
    if found is not None and claimed is not None and SAME_FORMAT.get(claimed, claimed) != found:
        what = f"rename it to {FORMATS[found]}" if claim.startswith(".") else f"call it {Image.MIME[found]}"
        raise ValueError(f"{name}: it is called {claim} and holds a {found}; {what}.")


def _decode(image: Image.Image, name: str) -> None:
    try:
        image.load()
    except Exception as error:  # as in load_image
        raise ValueError(_damaged(name, error)) from error


def _name(source: object) -> str:
    """What to call a source in a message: short, and without the query of an address, which may hold a secret."""
    if isinstance(source, bytes):
        return f"the image of {len(source)} bytes"
    if isinstance(source, str) and _scheme(source) == "data":
        return f"the image {source[:30].partition(',')[0]},..."
    text = str(source)
    if isinstance(source, str) and _scheme(source):
        text = text.partition("?")[0]
    return f"image {text if len(text) <= 200 else text[:197] + '...'!r}"


def _scheme(source: str) -> str:
    """The scheme of a URI in lower case; empty for a path."""
    head, colon, tail = source.partition(":")
    head = head.lower()
    return head if colon and (head in ("data", "file") or tail.startswith("//")) else ""


def _read(source: object, name: str, allow_remote: bool) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, Path):
        return _read_file(source, name)
    if not isinstance(source, str):
        raise ValueError(
            f"an image must be a path, a URI, bytes or a Pillow image, got {type(source).__name__}: convert it first."
        )
    scheme = _scheme(source)
    if scheme == "":
        return _read_file(Path(source), name)
    if scheme == "data":
        return _read_data(source, name)
    if scheme == "file":
        return _read_file(_path_of(source, name), name)
    if scheme not in ("http", "https"):
        raise ValueError(f"{name}: {scheme} is no known scheme; give a path, or a file, data, http or https URI.")
    if not allow_remote:
        raise ValueError(
            f"{name}: remote images are not fetched unless allowed; allow them, or give a file or its data."
        )
    return _fetch(source, name)


def _read_file(path: Path, name: str) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= BYTE_LIMIT:
            with open(path, "rb") as file:
                return file.read(BYTE_LIMIT + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{name}: the file cannot be read ({reason}).") from error
    if not stat.S_ISREG(status.st_mode):  # a pipe or a device may never end
        raise ValueError(f"{name}: it is no regular file; give the path of an image file.")
    raise ValueError(_too_many_bytes(name, status.st_size))


def _path_of(uri: str, name: str) -> Path:
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise ValueError(f"{name}: it is no URI ({error}).") from error
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"{name}: it is on the host {parts.netloc}; a file URI must name a file of this machine.")
    return Path(request.url2pathname(parts.path))


def _read_data(uri: str, name: str) -> bytes:
    header, comma, body = uri.partition(",")
    if not comma or not header.lower().endswith(";base64"):
        raise ValueError(f"{name}: a data URI of an image must be data:image/...;base64,...")
    if len(body) // 4 * 3 > BYTE_LIMIT + 3:  # before anything is copied
        raise ValueError(_too_many_bytes(name, len(body) // 4 * 3))
    try:
        return base64.b64decode(b"".join(unquote_to_bytes(body).split()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name}: its base64 text is damaged ({error}).") from error


def _fetch(uri: str, name: str) -> bytes:
    """GET with limits on bytes and time. Only http and https are spoken, wherever a server redirects to."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    end = time.monotonic() + REMOTE_SECONDS
    data = bytearray()
    try:
        with opener.open(request.Request(uri, headers={"Accept": "image/*"}), timeout=REMOTE_WAIT) as response:
            announced = response.headers.get("Content-Length", "")
            size = int(announced) if announced.isdecimal() else 0
            while size <= BYTE_LIMIT and time.monotonic() < end and (piece := response.read1(2**16)):
                data += piece
                size = max(size, len(data))
    except (OSError, HTTPException, ValueError) as error:  # URLError is an OSError; ValueError: what is no address
        raise ValueError(f"{name}: it cannot be fetched ({error}).") from error
    if size > BYTE_LIMIT:
        raise ValueError(_too_many_bytes(name, size))
    if time.monotonic() >= end:
        raise ValueError(f"{name}: it did not arrive within {REMOTE_SECONDS:g} seconds; download it first.")
    return bytes(data)


def _too_many_bytes(name: str, size: int) -> str:
    return f"{name}: it has {size} bytes; at most {BYTE_LIMIT} are read: store it smaller."


def _damaged(name: str, error: Exception) -> str:
    return f"{name}: it is damaged or cut off ({str(error).rstrip('.') or type(error).__name__})."


def _size(image: Image.Image) -> str:
    return f"{image.width} x {image.height}"
