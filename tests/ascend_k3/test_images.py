"""Images: the fixtures bit for bit, the size rule, transparency, prompts and pads, chat messages, and refusals."""

from __future__ import annotations

import base64
import json
import os
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3 import chat, images
from ascend_k3.config import K3Config
from ascend_k3.images import (
    collect_images,
    expand_pads,
    image_prompt,
    load_image,
    media_prompts,
    preprocess,
    preprocess_batch,
    preprocess_frames,
    resize_plan,
    tokens_of,
)
from ascend_k3.vision import VisionTower
from tests.paths import FIXTURES

SPECIFIED = json.loads((FIXTURES / "vision" / "preprocess.json").read_text())
GOLDEN = load_arrays(FIXTURES / "vision" / "preprocess.safetensors")
CASES = [pytest.param(case, id=f"{case['mode']}-{case['size'][0]}x{case['size'][1]}") for case in SPECIFIED["cases"]]
PLANS = [pytest.param(plan, id="{}x{}".format(*plan["size"])) for plan in SPECIFIED["resize_plans"]]


def picture(mode: str = "RGB", width: int = 40, height: int = 30, seed: int = 1) -> Image.Image:
    """Noise, of a mode that has 8 bits a channel."""
    channels = len(Image.new(mode, (1, 1)).getbands())
    shape = (height, width) if channels == 1 else (height, width, channels)
    noise = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    if mode == "1":
        return Image.fromarray(noise).convert("1")
    if mode == "P":
        return picture("RGB", width, height, seed).quantize(32)
    return Image.frombytes(mode, (width, height), noise.tobytes())


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def animation(format: str) -> bytes:
    return encoded(picture(seed=1), format, save_all=True, append_images=[picture(seed=2), picture(seed=3)])


def png(width: int, height: int, rows: bytes = b"", bits: int = 8) -> bytes:
    """A PNG file of RGB pixels; without rows it only announces its size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def bmp(width: int, height: int) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return struct.pack("<2sIHHI", b"BM", 54, 0, 0, 54) + head


def data_uri(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def unpatched(patches: Tensor, grid: tuple[int, int, int]) -> Tensor:
    """[H, W, 3] in 0 to 255 from the patches of an image: `preprocess` backwards."""
    _, rows, columns = grid
    pixels = patches.view(rows, columns, 3, 14, 14).permute(0, 3, 1, 4, 2).reshape(rows * 14, columns * 14, 3)
    return ((pixels + 1) * 127.5).round()


# The released rules


@pytest.mark.parametrize("case", CASES)
def test_patches_equal_the_fixture_bit_for_bit(case: dict[str, Any]) -> None:
    number, (width, height) = case["case"], case["size"]
    image = Image.frombytes(case["mode"], (width, height), GOLDEN[f"{number}.image"].tobytes())
    patches, grid = preprocess(image)
    assert list(grid) == case["grid_thw"]
    assert tokens_of(grid) == case["num_tokens"]
    expected = torch.from_numpy(GOLDEN[f"{number}.pixel_values"])
    assert patches.dtype == expected.dtype == torch.float32
    assert patches.shape == expected.shape
    assert torch.equal(patches, expected)


def test_the_fixture_has_every_kind_of_case() -> None:
    assert {case["mode"] for case in SPECIFIED["cases"]} == {"RGB", "RGBA", "L"}
    assert len(SPECIFIED["resize_plans"]) == 11


@pytest.mark.parametrize("expected", [*CASES, *PLANS])
def test_sizes_equal_the_fixture(expected: dict[str, Any]) -> None:
    plan = resize_plan(*expected["size"])
    for name in ("new_width", "new_height", "pad_width", "pad_height", "num_tokens"):
        assert getattr(plan, name) == expected[name], name


def test_the_constants_are_those_of_the_released_config() -> None:
    config = SPECIFIED["config"]
    assert (config["patch_size"], config["in_patch_limit"]) == (images.PATCH, images.PATCH_LIMIT)
    assert config["patch_limit_on_one_side"] == images.SIDE_LIMIT
    background = config["transparent_bg"]
    assert (background["square"], background["white"], background["gray"]) == (images.SQUARE, images.WHITE, images.GRAY)
    assert {images.MEAN} == set(config["image_mean"])
    assert {images.DEVIATION} == set(config["image_std"])
    vision = K3Config.from_pretrained(FIXTURES / "released_config.json").vision
    assert vision is not None
    assert (vision.patch_size, vision.init_pos_emb_time) == (images.PATCH, images.FRAME_LIMIT)


def assert_plan_keeps_the_limits(width: int, height: int) -> None:
    plan = resize_plan(width, height)
    assert 1 <= plan.new_width <= width
    assert 1 <= plan.new_height <= height
    assert max(plan.new_width, plan.new_height) <= 512 * 14
    # The whole patches of the original, scaled as it is, are at most 65536.
    scaled = (plan.new_width / width * max(1, width // 14)) * (plan.new_height / height * max(1, height // 14))
    assert scaled <= 65536 * (1 + 1e-9)
    if max(width, height) <= 512 * 14 and max(1, width // 14) * max(1, height // 14) <= 65536:
        assert (plan.new_width, plan.new_height) == (width, height)
    assert 0 <= plan.pad_width < 28
    assert 0 <= plan.pad_height < 28
    frames, rows, columns = plan.grid
    assert (rows * 14, columns * 14) == (plan.new_height + plan.pad_height, plan.new_width + plan.pad_width)
    assert frames == 1
    assert rows % 2 == columns % 2 == 0
    assert max(rows, columns) <= 512
    assert plan.num_tokens == rows * columns // 4


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_limits_hold_and_nothing_is_enlarged(width: int, height: int) -> None:
    assert_plan_keeps_the_limits(width, height)


@given(st.integers(1, 100_000), st.integers(1, 100_000))
@example(3591, 3591)
@example(3627, 7167)
@example(7168, 7169)
@example(100_000, 14)
def test_limits_hold_for_large_images(width: int, height: int) -> None:
    if max(width, height) >= 7168 * min(width, height):
        return  # too thin, see below
    assert_plan_keeps_the_limits(width, height)


@given(st.integers(2, 100_000))
def test_a_strip_is_refused_exactly_when_truncation_leaves_nothing(side: int) -> None:
    if side <= 7168:
        assert resize_plan(side, 1).new_height == resize_plan(1, side).new_width == 1
    else:
        with pytest.raises(ValueError, match=f"{side} x 1 pixels become 716[78] x 0 .*crop"):
            resize_plan(side, 1)
        with pytest.raises(ValueError, match=f"1 x {side} pixels become 0 x 716[78]"):
            resize_plan(1, side)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "YCbCr", "HSV", "RGBX"])
@pytest.mark.parametrize("size", [(20, 30), (7200, 10)], ids=["as it is", "scaled"])
def test_an_image_is_scaled_in_its_own_mode_and_then_flattened(mode: str, size: tuple[int, int]) -> None:
    image = picture(mode, *size)
    patches, grid = preprocess(image)
    plan = resize_plan(*size)
    scaled = image.resize((plan.new_width, plan.new_height), Image.Resampling.BICUBIC)
    pixels = np.array(scaled.convert("RGBA"), dtype=np.float32)
    if mode in ("LA", "RGBA"):
        row, column = np.mgrid[: plan.new_height, : plan.new_width]
        background = np.where((row // 8 + column // 8) % 2, np.float32(180), np.float32(255))[..., None]
        alpha = pixels[..., 3:] / np.float32(255)
        expected = np.trunc(alpha * pixels[..., :3] + (np.float32(1) - alpha) * background)
    else:
        expected = np.array(scaled.convert("RGB"), dtype=np.float32)
    found = unpatched(patches, grid)
    assert torch.equal(found[: plan.new_height, : plan.new_width], torch.from_numpy(expected))
    assert (found[plan.new_height :] == 0).all()
    assert (found[:, plan.new_width :] == 0).all()


def test_nothing_shows_through_but_the_chessboard() -> None:
    found = unpatched(*preprocess(Image.new("RGBA", (28, 28), (200, 100, 50, 0))))[..., 0]
    assert found[:8, :8].unique().tolist() == [255]
    assert found[:8, 8:16].unique().tolist() == [180]
    assert found[8:16, :8].unique().tolist() == [180]
    assert found[8:16, 8:16].unique().tolist() == [255]
    assert found[24:, 24:].unique().tolist() == [255]


def test_the_transparent_colour_of_a_palette_shows_the_chessboard() -> None:
    image = Image.new("P", (28, 28))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((9, 0), 1)
    found = unpatched(*preprocess(load_image(encoded(image, transparency=0))))
    assert found[0, 8].tolist() == [180, 180, 180]
    assert found[0, 9].tolist() == [40, 50, 60]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partly = load_image(encoded(image, transparency=bytes([51, 255])))  # alpha 0.2
        assert unpatched(*preprocess(partly))[0, 8].tolist() == [146, 148, 150]  # 0.2 * colour + 0.8 * 180


def test_the_transparent_colour_of_an_rgb_image_is_left_alone() -> None:
    image = Image.new("RGB", (28, 28), (10, 20, 30))
    loaded = load_image(encoded(image, transparency=(10, 20, 30)))
    assert loaded.info["transparency"] == (10, 20, 30)
    assert torch.equal(preprocess(loaded)[0], preprocess(image)[0])


def test_padding_is_black() -> None:
    patches, grid = preprocess(Image.new("RGB", (1, 1), (255, 255, 255)))
    assert grid == (1, 2, 2)
    assert patches[0, :, 0, 0].tolist() == [1, 1, 1]
    assert int((patches == -1).sum()) == 4 * 3 * 196 - 3


def test_orientation_in_exif_is_left_alone() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    image = load_image(encoded(picture(width=40, height=20), exif=exif))
    assert image.getexif()[0x0112] == 6
    assert image.size == (40, 20)
    assert torch.equal(preprocess(image)[0], preprocess(picture(width=40, height=20))[0])


def test_a_batch_is_its_images_one_after_another() -> None:
    several = [picture("RGB", 30, 60), picture("L", 90, 20), picture("RGBA", 28, 28)]
    pixel_values, grid_thws = preprocess_batch(several)
    single = [preprocess(image) for image in several]
    assert torch.equal(pixel_values, torch.cat([patches for patches, _ in single]))
    assert grid_thws.dtype == torch.int64
    assert grid_thws.tolist() == [list(grid) for _, grid in single] == [[1, 6, 4], [1, 2, 8], [1, 2, 2]]


def test_no_images_are_an_empty_batch() -> None:
    pixel_values, grid_thws = preprocess_batch([])
    assert (tuple(pixel_values.shape), pixel_values.dtype) == ((0, 3, 14, 14), torch.float32)
    assert (tuple(grid_thws.shape), grid_thws.dtype) == ((0, 3), torch.int64)


def test_frames_are_one_medium() -> None:
    frames = [picture(seed=seed) for seed in range(4)]
    patches, grid = preprocess_frames(frames)
    assert grid == (4, 4, 4)
    assert torch.equal(patches, torch.cat([preprocess(frame)[0] for frame in frames]))
    assert preprocess_frames(frames[:1])[1] == preprocess(frames[0])[1]


@pytest.mark.parametrize("kind", [list, tuple])
def test_frames_in_a_batch_are_one_medium(kind: Callable[[Any], Any]) -> None:
    still, frames = picture(width=90), [picture(seed=seed) for seed in range(3)]
    pixel_values, grid_thws = preprocess_batch([still, kind(frames), still])
    assert grid_thws.tolist() == [[1, 4, 8], [3, 4, 4], [1, 4, 8]]
    parts = [preprocess(still)[0], preprocess_frames(frames)[0], preprocess(still)[0]]
    assert torch.equal(pixel_values, torch.cat(parts))
    assert media_prompts([still, kind(frames)]) == [image_prompt(90, 30), image_prompt(40, 30)]


# Tokens and prompts


@pytest.mark.parametrize(
    "media",
    [
        pytest.param([(28, 28)], id="one group"),
        pytest.param([(1, 1), (57, 29), (20, 100)], id="three images"),
    ],
)
def test_the_tower_gives_as_many_tokens_as_are_counted(media: list[tuple[int, int]]) -> None:
    config = K3Config.from_pretrained(FIXTURES / "ckpt_bf16").vision
    assert config is not None
    tower = VisionTower(config)
    pixel_values, grid_thws = preprocess_batch([picture("RGB", *size) for size in media])
    counted = [tokens_of(grid) for grid in grid_thws.tolist()]
    assert counted == [resize_plan(*size).num_tokens for size in media]
    assert len(tower(pixel_values, grid_thws)) == sum(counted)

    patches, grid = preprocess_frames([picture("RGB", *media[0])] * 3)
    assert len(tower(patches, torch.tensor([grid]))) == tokens_of(grid) == counted[0]


def test_the_prompt_has_the_original_size() -> None:
    assert image_prompt(9000, 20) == "<|media_begin|>image 9000x20<|media_content|><|media_pad|><|media_end|>"


@pytest.mark.parametrize("as_tensor", [True, False], ids=["tensor", "list"])
def test_pads_are_expanded_as_in_the_fixture(as_tensor: bool) -> None:
    golden = load_file(FIXTURES / "vision" / "merged.safetensors")
    pad_id = json.loads((FIXTURES / "vision" / "merged.json").read_text())["media_placeholder_token_id"]
    grids = golden["grid_thws"] if as_tensor else golden["grid_thws"].tolist()
    ids = expand_pads(golden["input_ids"][0].tolist(), grids, pad_id)
    assert ids == golden["row0_input_ids_expanded"].tolist()


def test_ids_without_images_stay_as_they_are() -> None:
    assert expand_pads([1, 2, 3], torch.empty(0, 3, dtype=torch.int64), 9) == [1, 2, 3]


# Loading


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a picture.png"
    picture().save(path)
    return path


@pytest.mark.parametrize(
    "source_of",
    [
        pytest.param(lambda path: path, id="path"),
        pytest.param(str, id="text"),
        pytest.param(lambda path: path.as_uri(), id="file URI"),
        pytest.param(lambda path: path.as_uri().replace("file://", "FILE://localhost"), id="file URI with host"),
        pytest.param(lambda path: path.read_bytes(), id="bytes"),
        pytest.param(lambda path: data_uri(path.read_bytes()), id="data URI"),
        pytest.param(lambda path: data_uri(path.read_bytes()).replace("+", "%2B") + "\n", id="escaped data URI"),
        pytest.param(lambda path: Image.open(path), id="Pillow"),
    ],
)
def test_every_kind_of_source_gives_the_same_image(file: Path, source_of: Callable[[Path], Any]) -> None:
    source = source_of(file)
    loaded = load_image(source)
    assert loaded.mode == "RGB"
    assert loaded.tobytes() == picture().tobytes()
    assert not isinstance(source, Image.Image) or loaded is source


@pytest.mark.parametrize("format", ["AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP"])
def test_every_format_is_read_under_a_name_that_says_nothing(format: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.txt"
    path.write_bytes(encoded(picture(), format))
    loaded = load_image(path)
    assert (loaded.format, loaded.size) == (format, (40, 30))
    assert preprocess(loaded)[1] == (1, 4, 4)


def claimed(folder: Path, name: str, format: str, kind: str) -> Any:
    """A source that is called `name`, an extension or a media type, and holds an image of another format perhaps."""
    data = encoded(picture(), format)
    if kind == "data URI":
        return data_uri(data).replace("image/png", name)
    path = folder / f"picture{name}"
    path.write_bytes(data)
    return {"path": path, "text": str(path), "file URI": path.as_uri()}[kind]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        *((extension, "JPEG") for extension in (".jpg", ".jpeg", ".jpe", ".jfif", ".JPG", ".mpo")),
        *((extension, "JPEG2000") for extension in (".jp2", ".j2k", ".jpx")),
        *((extension, "PPM") for extension in (".ppm", ".pnm")),
        *((extension, "PNG") for extension in (".png", ".apng", ".jpg.png", "", ".txt", ".heic", ".png.tmp")),
        *((extension, "BMP") for extension in (".bmp", ".dib")),
        *((extension, "TIFF") for extension in (".tif", ".tiff")),
        (".webp", "WEBP"),
        (".avif", "AVIF"),
        (".gif", "GIF"),
    ],
)
@pytest.mark.parametrize("kind", ["path", "text", "file URI"])
def test_an_extension_of_the_format_and_one_that_says_nothing_are_taken(
    name: str, format: str, kind: str, tmp_path: Path
) -> None:
    assert load_image(claimed(tmp_path, name, format, kind)).format == format


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("image/png", "PNG"),
        ("Image/PNG;charset=x", "PNG"),
        ("image/jpg", "JPEG"),
        ("image/jpeg", "JPEG"),
        ("image/bmp", "BMP"),
        ("image/x-portable-anymap", "PPM"),
        ("", "PNG"),
        ("application/octet-stream", "PNG"),
    ],
)
def test_a_media_type_of_the_format_and_one_that_says_nothing_are_taken(name: str, format: str, tmp_path: Path) -> None:
    assert load_image(claimed(tmp_path, name, format, "data URI")).format == format


@pytest.mark.parametrize(
    ("kind", "name", "format", "message"),
    [
        ("path", ".png", "JPEG", r"picture.png': it is called .png and holds a JPEG; rename it to .jpg\.$"),
        ("text", ".JPG", "PNG", r"it is called .jpg and holds a PNG; rename it to .png\.$"),
        ("file URI", ".gif", "WEBP", r"it is called .gif and holds a WEBP; rename it to .webp\.$"),
        ("path", ".jpg", "JPEG2000", r"it is called .jpg and holds a JPEG2000; rename it to .jp2\.$"),
        ("path", ".pdf", "TIFF", r"it is called .pdf and holds a TIFF; rename it to .tiff\.$"),
        ("path", ".png", "MPO", r"it is called .png and holds a JPEG; rename it to .jpg\.$"),
        ("data URI", "image/png", "JPEG", r"it is called image/png and holds a JPEG; call it image/jpeg\.$"),
        ("data URI", "image/jpg", "PNG", r"it is called image/jpg and holds a PNG; call it image/png\.$"),
        ("data URI", "image/x-portable-anymap", "BMP", r"image/x-portable-anymap and holds a BMP; call it image/bmp"),
    ],
)
def test_a_name_of_another_format_is_refused(kind: str, name: str, format: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_image(claimed(tmp_path, name, format, kind))


def test_every_format_has_its_extension_and_media_type() -> None:
    extensions = Image.registered_extensions()
    assert {extension: format for format, extension in images.FORMATS.items()}.items() <= extensions.items()
    assert all(Image.MIME[format].startswith("image/") for format in images.FORMATS)


def test_the_first_image_of_a_photograph_with_a_preview_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "photograph.jpg"
    path.write_bytes(encoded(picture(seed=1), "MPO", save_all=True, append_images=[picture(seed=2)]))
    loaded = load_image(path)
    assert loaded.format == "MPO"
    assert getattr(loaded, "n_frames", 1) == 2
    assert loaded.tobytes() == load_image(encoded(picture(seed=1), "JPEG")).tobytes()


def test_colours_of_16_bits_are_read_as_their_high_bytes() -> None:
    high = bytes(range(0, 180, 2)) * 10
    rows = b"".join(
        b"\0" + b"".join(bytes([value, 77]) for value in high[start : start + 90]) for start in range(0, 900, 90)
    )
    assert load_image(png(30, 10, rows, bits=16)).tobytes() == high


def tiff(mode: str) -> bytes:
    return encoded(Image.new(mode, (20, 10)), "TIFF")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "its 0 bytes do not open as an image; they must be AVIF, BMP, ", id="empty"),
        pytest.param(b"hello" * 100, "its 500 bytes do not open as an image", id="text"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "do not open as an image", id="EPS"),
        pytest.param(encoded(picture())[:-400], "is damaged or cut off", id="truncated PNG"),
        pytest.param(encoded(picture(), "JPEG")[:-200], "is damaged or cut off", id="truncated JPEG"),
        pytest.param(encoded(picture(), "WEBP")[:-200], "is damaged or cut off", id="truncated WEBP"),
        pytest.param(encoded(picture(), "TIFF")[:300], "is damaged or cut off", id="truncated TIFF"),
        pytest.param(encoded(picture("P"), "GIF")[:-200], "is damaged or cut off", id="truncated GIF"),
        pytest.param(encoded(picture(), "AVIF")[:700], "not cut off and not 0", id="truncated AVIF"),
        pytest.param(encoded(picture(), "JPEG2000")[:-200], "is damaged or cut off", id="truncated JPEG2000"),
        pytest.param(encoded(picture(), "BMP")[:-200], "is damaged or cut off", id="truncated BMP"),
        pytest.param(encoded(picture(), "PPM")[:-200], "is damaged or cut off", id="truncated PPM"),
        pytest.param(png(40, 30), "is damaged or cut off", id="PNG without pixels"),
        pytest.param(encoded(picture())[:60] + b"\xff" * 40 + encoded(picture())[100:], "is damaged", id="overwritten"),
        pytest.param(png(0, 30), "and not 0 pixels wide or high", id="0 x N PNG"),
        pytest.param(bmp(0, 30), "and not 0 pixels wide or high", id="0 x N BMP"),
        pytest.param(b"P6 0 5 255\n", "and not 0 pixels wide or high", id="0 x N PPM"),
        pytest.param(
            encoded(Image.new("L", (100_000, 1))),
            r"100000 x 1 pixels become 7167 x 0 when .* its limit of 7168 pixels \(512 patches of 14\); crop the image",
            id="100000 x 1",
        ),
        pytest.param(
            encoded(Image.new("RGB", (1, 100_000))),
            "1 x 100000 pixels become 0 x 7167 when .* its limit of 7168 pixels",
            id="1 x 100000",
        ),
        pytest.param(encoded(picture("CMYK"), "JPEG"), "its mode is CMYK, .*; convert it to RGB first", id="CMYK JPEG"),
        pytest.param(encoded(picture("CMYK"), "TIFF"), "its mode is CMYK, .*; convert it to RGB first", id="CMYK TIFF"),
        pytest.param(png(10_000, 10_000), "more than 89478485 pixels", id="bomb that Pillow warns of"),
        pytest.param(png(30_000, 30_000), "more than 89478485 pixels", id="bomb that Pillow refuses"),
        pytest.param(animation("GIF"), "has several frames or pages; only still images", id="animated GIF"),
        pytest.param(animation("PNG"), "has several frames or pages", id="animated PNG"),
        pytest.param(animation("WEBP"), "has several frames or pages", id="animated WEBP"),
        pytest.param(animation("TIFF"), "has several frames or pages", id="TIFF of several pages"),
        pytest.param(
            encoded(Image.new("I;16", (20, 10))), r"more than 8 bits a channel \(mode I;16\)", id="16-bit PNG"
        ),
        pytest.param(tiff("I;16"), r"more than 8 bits a channel \(mode I;16\)", id="16-bit TIFF"),
        pytest.param(tiff("I"), r"more than 8 bits a channel \(mode I\)", id="32-bit TIFF"),
        pytest.param(tiff("F"), r"more than 8 bits a channel \(mode F\)", id="float TIFF"),
        pytest.param(tiff("LAB"), "its mode is LAB; it must be one of 1, L, LA", id="LAB"),
    ],
)
def test_a_bad_image_is_one_clear_sentence(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load_image(data)
    text = str(caught.value)
    assert text.startswith(f"the image of {len(data)} bytes: ")
    assert text.endswith(".")
    assert "\n" not in text


@given(st.data())
def test_a_damaged_file_gives_an_image_or_a_sentence(data: st.DataObject) -> None:
    original = DAMAGEABLE[data.draw(st.sampled_from(sorted(DAMAGEABLE)))]
    start = data.draw(st.integers(0, len(original)))
    inserted = data.draw(st.binary(max_size=8))
    damaged = original[:start] + inserted
    if data.draw(st.booleans()):
        damaged += original[start + len(inserted) :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of odd metadata
        try:
            load_image(damaged)
        except ValueError as error:
            assert type(error) is ValueError
            assert str(error).startswith(f"the image of {len(damaged)} bytes: ")


DAMAGEABLE = {format: encoded(picture(width=9, height=7), format) for format in images.FORMATS} | {
    "animation": animation("GIF")
}


def test_pixels_are_limited_whatever_pillow_is_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(ValueError, match="it has 30000 x 30000 pixels; at most 89478485 are decoded: scale it down"):
        load_image(png(30_000, 30_000))


@pytest.mark.parametrize("kind", ["bytes", "file", "data"])
def test_encoded_bytes_are_limited(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(picture())
    data += bytes(1 - len(data) % 3 + 3)  # a length of 3 n + 1, whose base64 text is padded
    path = tmp_path / "picture.png"
    path.write_bytes(data)
    source = {"bytes": data, "file": path, "data": data_uri(data)}[kind]
    monkeypatch.setattr(images, "BYTE_LIMIT", len(data))
    load_image(source)
    monkeypatch.setattr(images, "BYTE_LIMIT", len(data) - 10)
    found = len(data) + 2 if kind == "data" else len(data)  # the text is measured, not decoded
    with pytest.raises(ValueError, match=rf"it has {found} bytes; at most {len(data) - 10} are read: store it smaller"):
        load_image(source)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        pytest.param(Image.new("RGB", (0, 5)), "0 x 5 pixels are no image", id="0 x N"),
        pytest.param(Image.new("L", (1, 7169)), "1 x 7169 pixels become 0 x 7168", id="strip"),
        pytest.param(Image.new("L", (100_000, 1)), "100000 x 1 pixels become 7167 x 0", id="100000 x 1"),
        pytest.param(Image.new("L", (1, 100_000)), "1 x 100000 pixels become 0 x 7167", id="1 x 100000"),
        pytest.param(Image.new("CMYK", (5, 5)), "mode is CMYK, .*; convert it to RGB first", id="CMYK"),
        pytest.param(Image.new("I;16", (5, 5)), "more than 8 bits a channel", id="16-bit"),
        pytest.param(Image.open(BytesIO(animation("GIF"))), "several frames", id="animated"),
        pytest.param(Image.open(BytesIO(encoded(picture())[:-400])), "damaged or cut off", id="truncated"),
    ],
)
def test_a_bad_pillow_image_is_refused_when_loaded_and_when_preprocessed(image: Image.Image, message: str) -> None:
    with pytest.raises(ValueError, match=f"the Pillow image: .*{message}"):
        load_image(image)
    with pytest.raises(ValueError, match=f"preprocess: the image: .*{message}"):
        preprocess(image)
    with pytest.raises(ValueError, match=f"preprocess_batch: image 1: .*{message}"):
        preprocess_batch([picture(), image])
    with pytest.raises(ValueError, match=f"preprocess_frames: frame 0: .*{message}"):
        preprocess_frames([image])


def named_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize(
    ("source_of", "message"),
    [
        pytest.param(lambda folder: folder / "none.png", r"none.png': the file cannot be read \(No such", id="missing"),
        pytest.param(lambda folder: folder, "it is no regular file", id="folder"),
        pytest.param(named_pipe, "it is no regular file", id="pipe"),
        pytest.param(lambda folder: "a\0b.png", r"a\\x00b.png': the file cannot be read", id="zero byte"),
        pytest.param(lambda folder: "file://elsewhere/a.png", "on the host elsewhere; a file URI", id="other host"),
        pytest.param(lambda folder: "file://[/a.png", "it is no URI", id="bad file URI"),
        pytest.param(lambda folder: "ftp://host/a.png", "ftp is no known scheme", id="scheme"),
        pytest.param(lambda folder: "data:image/png,abc", "must be data:image/...;base64,...", id="not base64"),
        pytest.param(lambda folder: "data:image/png;base64", "must be data:image/...;base64,...", id="no data"),
        pytest.param(lambda folder: "data:image/png;base64,ab?cd", "base64 text is damaged", id="bad characters"),
        pytest.param(lambda folder: "data:image/png;base64,abcde", "base64 text is damaged", id="bad length"),
        pytest.param(
            lambda folder: "https://host/a.png?key=secret", "'https://host/a.png': remote images", id="remote"
        ),
        pytest.param(
            lambda folder: "HTTP://host/a.png", "remote images are not fetched unless allowed", id="upper case"
        ),
        pytest.param(lambda folder: 7, "must be a path, a URI, bytes or a Pillow image, got int", id="number"),
        pytest.param(lambda folder: None, "got NoneType", id="none"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(
    source_of: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        load_image(source_of(tmp_path))


def test_names_in_messages_are_short_and_without_secrets() -> None:
    with pytest.raises(ValueError) as caught:
        load_image("x" * 3000)
    assert len(str(caught.value)) < 300
    with pytest.raises(ValueError) as caught:
        load_image("data:image/png;base64," + "A" * 4000)
    assert len(str(caught.value)) < 200
    with pytest.raises(ValueError) as caught:
        load_image("https://host/a.png?key=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: preprocess(b"abc"), "preprocess: the image must be a Pillow image, got bytes", id="bytes"),
        pytest.param(lambda: preprocess_frames([]), "got 0 frames; a medium has 1 to 4", id="no frames"),
        pytest.param(lambda: preprocess_frames([picture()] * 5), "got 5 frames; a medium has 1 to 4", id="5 frames"),
        pytest.param(
            lambda: preprocess_frames([picture(), picture(width=41)]),
            "frame 1 has 41 x 30 pixels and frame 0 has 40 x 30",
            id="frames of two sizes",
        ),
        pytest.param(
            lambda: preprocess_batch([picture(), [picture()] * 5]),
            "preprocess_batch: image 1: got 5 frames; a medium has 1 to 4, so split it",
            id="5 frames in a batch",
        ),
        pytest.param(
            lambda: media_prompts([picture(), []]), "media_prompts: image 1: got 0 frames", id="no frames in a prompt"
        ),
        pytest.param(
            lambda: preprocess_batch([(picture(), picture("CMYK"))]),
            "preprocess_batch: image 0: frame 1: its mode is CMYK",
            id="a bad frame in a batch",
        ),
        pytest.param(lambda: image_prompt(0, 5), "0 x 5 is no size of an image", id="prompt"),
        pytest.param(lambda: expand_pads([9, 1, 9], [(1, 2, 2)], 9), "2 pads .id 9. and there are 1 images", id="pads"),
        pytest.param(lambda: expand_pads([1], [(1, 2, 2)], 9), "0 pads .id 9. and there are 1 images", id="no pads"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# Over the network, to a server on this machine


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *arguments: object) -> None:
            pass

    web = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{web.server_port}"
    finally:
        web.shutdown()
        thread.join()
        web.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def send(handler: BaseHTTPRequestHandler, data: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def test_an_allowed_remote_image_is_fetched() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/old":
            send(handler, b"", 302, Location="/new")
        else:
            send(handler, encoded(picture()))

    with server(answer) as address:
        assert load_image(f"{address}/old", allow_remote=True).tobytes() == picture().tobytes()
        item = {"type": "image_url", "image_url": {"url": f"{address}/new"}}
        assert len(collect_images([{"role": "user", "content": [item]}], allow_remote=True)) == 1
        with pytest.raises(ValueError, match=r"message 0 \(user\), content item 0: .* not fetched unless allowed"):
            collect_images([{"role": "user", "content": [item]}])


def send_pieces(handler: BaseHTTPRequestHandler, piece: bytes, most: int, pause: float) -> int:
    """Send an answer without an end; the number of pieces that were taken."""
    send(handler, b"")
    for sent in range(most):
        try:
            handler.wfile.write(piece)
        except OSError:  # the other side has left
            return sent
        time.sleep(pause)
    return most


def test_a_remote_image_that_announces_too_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "BYTE_LIMIT", 1000)
    with (
        server(lambda handler: send(handler, b"", Content_Length="123456")) as address,
        pytest.raises(ValueError, match="it has 123456 bytes; at most 1000 are read"),
    ):
        load_image(address, allow_remote=True)


def test_a_remote_image_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "BYTE_LIMIT", 100_000)
    sent = []
    with (
        server(lambda handler: sent.append(send_pieces(handler, bytes(2**16), 500, 0.0))) as address,
        pytest.raises(ValueError, match=r"it has \d+ bytes; at most 100000 are read"),
    ):
        load_image(address, allow_remote=True)
    assert sent[0] < 500


def test_a_remote_image_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "REMOTE_SECONDS", 0.1)
    sent = []
    with (
        server(lambda handler: sent.append(send_pieces(handler, b"x", 300, 0.01))) as address,
        pytest.raises(ValueError, match="did not arrive within 0.1 seconds; download it first"),
    ):
        load_image(address, allow_remote=True)
    assert sent[0] < 300


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "REMOTE_WAIT", 0.05)
    done = threading.Event()
    with server(lambda handler: bool(done.wait(10)) and None) as address:
        with pytest.raises(ValueError, match="it cannot be fetched .*timed out"):
            load_image(address, allow_remote=True)
        done.set()


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/a.png"])
def test_a_redirection_to_anything_else_is_refused(target: str) -> None:
    with (
        server(lambda handler: send(handler, b"", 302, Location=target)) as address,
        pytest.raises(ValueError, match="it cannot be fetched"),
    ):
        load_image(address, allow_remote=True)


@pytest.mark.parametrize("address", ["http://", "http://[", "http://127.0.0.1:x/", "http://127.0.0.1/é", "http://a b/"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="it cannot be fetched"):
        load_image(address, allow_remote=True)


def test_a_missing_remote_image_is_named() -> None:
    with (
        server(lambda handler: send(handler, b"", 404)) as address,
        pytest.raises(ValueError, match=r"'http://127.0.0.1:\d+/a.png': it cannot be fetched \(HTTP Error 404"),
    ):
        load_image(f"{address}/a.png?key=secret", allow_remote=True)


# Chat messages


def test_images_are_collected_in_the_order_of_the_rendering(file: Path) -> None:
    def call(name: str) -> dict[str, Any]:
        return {"id": name, "function": {"name": name, "arguments": "{}"}}

    def result(name: str, width: int) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": name, "content": [{"type": "image", "image": picture(width=width)}]}

    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "text only"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": data_uri(encoded(picture(width=11))), "detail": "high"}},
                {"type": "text", "text": "and"},
                {"type": "image_url", "image_url": str(file)},
                {"type": "image", "image": encoded(picture(width=13))},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        result("b", 15),
        result("a", 14),
        {"role": "user", "content": [{"type": "image", "image": file}]},
    ]
    collected = collect_images(messages)
    assert [image.width for image in collected] == [11, 40, 13, 14, 15, 40]
    prompts = [image_prompt(*image.size) for image in collected]
    segments = chat.render(messages, image_prompts=prompts)
    assert [segment.text for segment in segments if "media_begin" in segment.text] == prompts
    assert not any("media_begin" in segment.text for segment in segments if not segment.allow_special)


def test_a_list_of_images_is_collected_as_the_frames_of_one_medium(file: Path) -> None:
    frames = [picture(seed=1), str(file), encoded(picture(seed=2))]
    content = [{"type": "image", "image": frames}, {"type": "image", "image": picture(width=13)}]
    messages = [{"role": "user", "content": content}]
    medium, still = collect_images(messages)
    assert isinstance(medium, list) and isinstance(still, Image.Image)
    assert [frame.tobytes() for frame in medium] == [picture(seed=seed).tobytes() for seed in (1, 1, 2)]
    assert media_prompts([medium, still]) == [image_prompt(40, 30), image_prompt(13, 30)]
    segments = chat.render(messages, image_prompts=media_prompts([medium, still]))
    assert sum("media_begin" in segment.text for segment in segments) == 2


@pytest.mark.parametrize(
    ("item", "message"),
    [
        pytest.param({"type": "image", "image": []}, "got 0 frames; a medium has 1 to 4", id="no frames"),
        pytest.param(
            {"type": "image", "image": ["/none.png"] * 5}, "got 5 frames; a medium has 1 to 4, so split", id="5 frames"
        ),
        pytest.param(
            {"type": "image", "image": [picture(), picture(width=41)]},
            "frame 1 has 41 x 30 pixels and frame 0 has 40 x 30; the frames of a medium must have one size",
            id="frames of two sizes",
        ),
        pytest.param({"type": "image", "image": [picture(), "/none.png"]}, "'/none.png': the file", id="a bad frame"),
        pytest.param({"type": "image", "image": [[picture()]]}, "got list", id="frames of frames"),
        pytest.param({"type": "image_url", "image_url": ["/none.png"]}, "got list", id="frames as a URL"),
        pytest.param({"type": "image"}, "is of type image and has no 'image'", id="no image"),
        pytest.param(
            {"type": "image_url", "image_url": {}}, "is of type image_url and has no 'image_url'", id="no url"
        ),
        pytest.param(
            {"type": "image_url", "image_url": "/none.png"}, "'/none.png': the file cannot be read", id="file"
        ),
        pytest.param({"type": "image", "image": 5}, "got int", id="number"),
    ],
)
def test_a_bad_item_is_named_by_its_message(item: dict[str, Any], message: str) -> None:
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "a"}, item]}]
    with pytest.raises(ValueError, match=rf"message 1 \(user\), content item 1: .*{message}"):
        collect_images(messages)


def test_messages_without_images_have_none() -> None:
    assert collect_images([{"role": "user", "content": "text"}, {"role": "assistant", "content": None}]) == []
    assert collect_images([]) == []
