"""Images in the whole model: the independent implementation's logits, mixed batches, generation, the program."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3 import K3Config, K3ForConditionalGeneration, generate, load_model, save_model
from ascend_k3.bpe import train_bpe, write_tokenizer
from ascend_k3.cli import main
from ascend_k3.images import image_prompt, preprocess_batch
from tests.ascend_k3.checkpoints import tiny
from tests.paths import FIXTURES
from tests.tolerances import LOGITS_ATOL, SPLIT_ATOL

PAD = 155  # media_placeholder_token_id of the tiny checkpoints


def fixture() -> dict[str, Tensor]:
    return load_file(FIXTURES / "vision/merged.safetensors")


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return Image.fromarray(pixels.numpy())


def test_one_placeholder_for_each_image_is_expanded() -> None:
    x = fixture()
    logits = tiny("ckpt_bf16")(x["input_ids"], x["attention_mask"], x["pixel_values"], x["grid_thws"]).logits
    torch.testing.assert_close(logits[0], x["row0_logits"], atol=LOGITS_ATOL, rtol=0)


def test_one_placeholder_for_each_token_is_taken_as_it_is() -> None:
    x = fixture()
    ids = x["row0_input_ids_expanded"][None]
    logits = tiny("ckpt_bf16")(ids, None, x["pixel_values"], x["grid_thws"]).logits
    torch.testing.assert_close(logits[0], x["row0_logits"], atol=LOGITS_ATOL, rtol=0)


def test_images_in_pieces_through_a_cache() -> None:
    x, model = fixture(), tiny("ckpt_bf16")
    ids = x["row0_input_ids_expanded"]
    first_media = int((ids == PAD).nonzero()[0])
    cache = model.new_cache(max_sequences=1, max_tokens=32)
    model(ids[None, :first_media], cache=cache)
    rest = model(ids[None, first_media:], None, x["pixel_values"], x["grid_thws"], cache=cache).logits
    torch.testing.assert_close(rest[0], x["row0_logits"][first_media:], atol=LOGITS_ATOL, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_text_one_image_and_three_images_in_a_batch_equal_each_alone(side: str) -> None:
    model = tiny("ckpt_bf16")
    rows = [[5, 6, 7, 8], [1, PAD, 2], [PAD, 9, PAD, PAD, 3]]
    images = [[], [picture(60, 40)], [picture(30, 30, 1), picture(90, 20, 2), picture(28, 56, 3)]]
    width = max(map(len, rows))
    ids, mask = torch.zeros(3, width, dtype=torch.int64), torch.zeros(3, width, dtype=torch.int64)
    for n, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[n, place], mask[n, place] = torch.tensor(row), 1
    together = model(ids, mask, *preprocess_batch([image for row in images for image in row])).logits
    for n, (row, own) in enumerate(zip(rows, images, strict=True)):
        alone = model(torch.tensor([row]), None, *(preprocess_batch(own) if own else ())).logits[0]
        found = together[n, -len(alone) :] if side == "left" else together[n, : len(alone)]
        torch.testing.assert_close(found, alone, atol=SPLIT_ATOL, rtol=0)
        padding = together[n, : -len(alone)] if side == "left" else together[n, len(alone) :]
        assert not padding.any()


def test_generation_with_images_equals_each_alone_and_full_recomputation() -> None:
    model = tiny("ckpt_bf16")
    prompts = [[1, PAD, 2], [5, 6], [PAD, 9, PAD, 3]]
    images = [[picture(60, 40)], [], [picture(30, 30, 1), picture(90, 20, 2)]]
    pixels, grids = preprocess_batch([image for own in images for image in own])
    together = generate(model, prompts, max_new_tokens=4, stop_ids=[], pixel_values=pixels, grid_thws=grids)
    for row, prompt, own in zip(together.tolist(), prompts, images, strict=True):
        given = dict(zip(("pixel_values", "grid_thws"), preprocess_batch(own), strict=True)) if own else {}
        assert generate(model, [prompt], max_new_tokens=4, stop_ids=[], **given)[0].tolist() == row
        logits = model(torch.tensor([prompt + row[:-1]]), **given, logits_to_keep=4).logits[0]
        assert logits.argmax(-1).tolist() == row


# --- frames: a medium of several images --------------------


def frames(count: int, width: int = 60, height: int = 40) -> list[Image.Image]:
    return [picture(width, height, seed) for seed in range(10, 10 + count)]


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("side", ["left", "right"])
def test_frames_in_a_batch_equal_the_same_alone(count: int, side: str) -> None:
    model = tiny("ckpt_bf16")
    rows = [[5, 6, 7, 8, 9], [1, PAD, 2], [PAD, 9, PAD, 3]]
    media = [[], [frames(count)], [picture(30, 30), frames(count, 90, 20)]]
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    ids = torch.tensor([row + [0] * (5 - len(row)) for row in rows])
    if side == "left":
        ids = torch.stack([row.roll(5 - int(n)) for row, n in zip(ids, mask.sum(1), strict=True)])
        mask = mask.flip(1)
    together = model(ids, mask, *preprocess_batch([medium for own in media for medium in own])).logits
    for found, row, own in zip(together, rows, media, strict=True):
        alone = model(torch.tensor([row]), None, *(preprocess_batch(own) if own else ())).logits[0]
        found = found[-len(alone) :] if side == "left" else found[: len(alone)]
        torch.testing.assert_close(found, alone, atol=SPLIT_ATOL, rtol=0)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_frames_in_pieces_through_a_cache(count: int) -> None:
    model = tiny("ckpt_bf16")
    media = [frames(count), picture(30, 30)]
    ids = [1, 2, PAD, 3, PAD, 4]
    pixels, grids = preprocess_batch(media)
    whole = model(torch.tensor([ids]), None, pixels, grids).logits[0]
    cache = model.new_cache(max_sequences=1, max_tokens=len(whole))
    pieces = [(ids[:2], None), (ids[2:4], media[:1]), (ids[4:5], media[1:]), (ids[5:], None)]
    logits = [
        model(torch.tensor([piece]), None, *(preprocess_batch(own) if own else ()), cache=cache).logits[0]
        for piece, own in pieces
    ]
    torch.testing.assert_close(torch.cat(logits), whole, atol=SPLIT_ATOL, rtol=0)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_generation_with_frames_equals_each_alone_and_full_recomputation(count: int) -> None:
    model = tiny("ckpt_bf16")
    prompts = [[1, PAD, 2], [5, 6], [PAD, 9, PAD, 3]]
    media = [[frames(count)], [], [picture(30, 30), frames(count, 90, 20)]]
    pixels, grids = preprocess_batch([medium for own in media for medium in own])
    together = generate(model, prompts, max_new_tokens=4, stop_ids=[], pixel_values=pixels, grid_thws=grids)
    for row, prompt, own in zip(together.tolist(), prompts, media, strict=True):
        given = dict(zip(("pixel_values", "grid_thws"), preprocess_batch(own), strict=True)) if own else {}
        assert generate(model, [prompt], max_new_tokens=4, stop_ids=[], **given)[0].tolist() == row
        logits = model(torch.tensor([prompt + row[:-1]]), **given, logits_to_keep=4).logits[0]
        assert logits.argmax(-1).tolist() == row


def test_frames_differ_from_the_still_image_and_have_an_order() -> None:
    model, ids = tiny("ckpt_bf16"), torch.tensor([[1, PAD, 2]])
    still, other = frames(2)

    def last(medium: Image.Image | list[Image.Image]) -> Tensor:
        return model(ids, None, *preprocess_batch([medium]), logits_to_keep=1).logits

    torch.testing.assert_close(last([still]), last(still), atol=0, rtol=0)
    different = [last(still), last([still, still]), last([still, other]), last([other, still])]
    for n, logits in enumerate(different):
        for earlier in different[:n]:
            assert (logits - earlier).abs().max() > 10 * SPLIT_ATOL


def test_gradients_reach_tower_and_projector() -> None:
    model = K3ForConditionalGeneration(K3Config.from_pretrained(FIXTURES / "ckpt_bf16"))
    x = fixture()
    model(x["input_ids"], x["attention_mask"], x["pixel_values"], x["grid_thws"]).logits.square().mean().backward()
    for name, parameter in (*model.vision_tower.named_parameters(), *model.mm_projector.named_parameters()):
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name


def test_a_wrong_call_is_refused() -> None:
    x, model = fixture(), tiny("ckpt_bf16")
    with pytest.raises(ValueError, match="pixel_values and grid_thws go together"):
        model(x["input_ids"], None, x["pixel_values"])
    with pytest.raises(ValueError, match="input_ids hold 0 image placeholders .* one for each of the 2 images"):
        model(torch.tensor([[1, 2]]), None, x["pixel_values"], x["grid_thws"])
    with pytest.raises(ValueError, match="this checkpoint has no vision tower; give text only"):
        tiny("ckpt_kernel")(torch.tensor([[1, 2]]), None, x["pixel_values"], x["grid_thws"])
    with pytest.raises(ValueError, match="the prompts have 1 image placeholders .* there are 2 images"):
        generate(model, [[PAD]], pixel_values=x["pixel_values"], grid_thws=x["grid_thws"])


# --- the program --------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ckpt_bf16's shape with a vocabulary that a byte tokenizer fits into."""
    data = json.loads((FIXTURES / "ckpt_bf16/config.json").read_text())
    ids = {"bos_token_id": 256, "eos_token_id": 258, "pad_token_id": 319}
    data |= {**ids, "media_placeholder_token_id": 277}
    data["text_config"] |= {**ids, "vocab_size": 320}
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("seeing") / "checkpoint"
    save_model(K3ForConditionalGeneration(K3Config.from_dict(data)), folder, experts="bf16")
    write_tokenizer(folder, train_bpe(["a few words"], 256), 320)
    return folder


def test_images_from_the_command_line(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "picture.png"
    picture(64, 48).save(file)
    common = ["generate", str(checkpoint), "--max-new-tokens", "2", "--json"]
    assert main([*common, "--prompt", "what?", "--image", str(file)]) == 0
    answer = json.loads(capsys.readouterr().out)
    # <|media_begin|>, the text with the original size, <|media_content|>, one placeholder, <|media_end|>, the prompt
    assert answer["prompt_tokens"] == [274, *b"image 64x48", 275, 277, 276, *b"what?"]
    assert main([*common, "--chat", "what?", "--image", str(file), "--image", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["prompt_tokens"].count(277) == 2


def test_frames_from_the_command_line(checkpoint: Path, tmp_path: Path) -> None:
    """As a program: what it prints is what the model gives for the same media, in the order of the options."""
    names = ["a.png", "b.png", "c.png"]
    for name, frame in zip(names, frames(3, 64, 48), strict=True):
        frame.save(tmp_path / name)
    picture(20, 30).save(tmp_path / "still.png")

    media = ["--frames", *names, "--image", "still.png", "--frames", *names[:2]]
    options = ["--prompt", "what?", "--max-new-tokens", "4", "--json", *media]
    done = subprocess.run(
        [sys.executable, "-m", "ascend_k3", "generate", str(checkpoint), *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    prompts = {64: [274, *b"image 64x48", 275, 277, 276], 20: [274, *b"image 20x30", 275, 277, 276]}
    assert answer["prompt_tokens"] == [*prompts[64], *prompts[20], *prompts[64], *b"what?"]
    model, still = load_model(checkpoint, dtype=torch.float32), picture(20, 30)

    def answer_to(*media: Image.Image | list[Image.Image]) -> list[int]:
        pixels, grids = preprocess_batch(media)
        prompt = answer["prompt_tokens"]
        return generate(model, [prompt], max_new_tokens=4, pixel_values=pixels, grid_thws=grids)[0].tolist()

    assert answer["tokens"] == answer_to(frames(3, 64, 48), still, frames(2, 64, 48))
    first = frames(1, 64, 48)[0]
    assert answer["tokens"] != answer_to(first, still, first)


def test_frames_in_a_chat(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    for file, frame in zip(files, frames(2), strict=True):
        frame.save(file)
    chat = tmp_path / "chat.json"
    content = [{"type": "image", "image": files}, {"type": "text", "text": "what?"}]
    chat.write_text(json.dumps([{"role": "user", "content": content}]))
    common = ["generate", str(checkpoint), "--max-new-tokens", "2", "--json"]
    assert main([*common, "--messages", str(chat)]) == 0
    from_messages = json.loads(capsys.readouterr().out)
    assert from_messages["prompt_tokens"].count(277) == 1
    assert main([*common, "--chat", "what?", "--frames", *files]) == 0
    assert json.loads(capsys.readouterr().out) == from_messages


def test_a_chat_of_several_turns_with_images(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    buffer = BytesIO()
    picture(20, 20).save(buffer, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    messages = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": "one"}],
        },
        {"role": "assistant", "content": "a square", "reasoning_content": ""},
        {
            "role": "user",
            "content": [{"type": "text", "text": "and"}, {"type": "image_url", "image_url": {"url": uri}}],
        },
    ]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(messages))
    assert main(["generate", str(checkpoint), "--messages", str(file), "--max-new-tokens", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt_tokens"].count(277) == 2
    messages[0]["content"][0]["image_url"]["url"] = "https://example.org/a.png"
    file.write_text(json.dumps(messages))
    assert main(["generate", str(checkpoint), "--messages", str(file)]) == 2
    assert "message 0 (user), content item 0" in (error := capsys.readouterr().err) and error.count("\n") == 1


@pytest.mark.parametrize(
    "options, message",
    [
        (["--tokens", "1", "--image", "x.png"], "--image and --frames go with --prompt or --chat"),
        (["--tokens", "1", "--frames", "x.png", "y.png"], "--image and --frames go with --prompt or --chat"),
        (["--messages", "x.json", "--image", "x.png"], "--image and --frames go with --prompt or --chat"),
        (["--prompt", "a", "--frames", *["x.png"] * 5], "got 5 frames; a medium has 1 to 4"),
        (["--prompt", "a", "--frames", "40x30.png", "41x30.png"], "frame 1 has 41 x 30 pixels and frame 0 has 40 x 30"),
        (["--prompt", "a", "--image", "jpeg.png"], "'jpeg.png': it is called .png and holds a JPEG; rename it to .jpg"),
        (["--prompt", "a", "--image", "cmyk.jpg"], "'cmyk.jpg': its mode is CMYK"),
        (["--prompt", "a", "--image", "thin.png"], "'thin.png': 100000 x 1 pixels become 7167 x 0"),
        (["--prompt", "a", "--image", "nowhere.png"], "nowhere.png"),
    ],
)
def test_wrong_image_options(
    checkpoint: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    picture(40, 30).save("40x30.png")
    picture(41, 30).save("41x30.png")
    picture(40, 30).save("jpeg.png", "JPEG")
    picture(40, 30).convert("CMYK").save("cmyk.jpg")
    Image.new("L", (100_000, 1)).save("thin.png")
    assert main(["generate", str(checkpoint), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_prompt_of_an_image_names_its_original_size() -> None:
    assert image_prompt(640, 480) == "<|media_begin|>image 640x480<|media_content|><|media_pad|><|media_end|>"
