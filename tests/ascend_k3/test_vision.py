"""MoonViT-V2 and the projector: the fixtures, the released names, media apart from each other, and refusals."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ascend_k3.config import K3Config, VisionConfig
from ascend_k3.vision import NORM_EPS, Projector, VisionTower, rotary_angles
from tests.paths import FIXTURES
from tests.tolerances import BF16_MULTIPLE, FIXTURE_ATOL, FIXTURE_RTOL, RELATIVE_RMS, assert_close_rms, relative_rms

GOLDEN = load_file(FIXTURES / "vision" / "tower.safetensors")
PIXELS, GRIDS = GOLDEN["pixel_values"], GOLDEN["grid_thws"]


def vision_config(path: str) -> VisionConfig:
    config = K3Config.from_pretrained(FIXTURES / path).vision
    assert config is not None
    return config


def from_checkpoint(dtype: torch.dtype, norm_eps: float = NORM_EPS) -> tuple[VisionTower, Projector]:
    weights = load_file(FIXTURES / "ckpt_bf16" / "model.safetensors")
    config = vision_config("ckpt_bf16")
    tower, projector = VisionTower(config), Projector(config)
    for module, root in ((tower, "vision_tower."), (projector, "mm_projector.")):
        module.load_state_dict({name.removeprefix(root): w for name, w in weights.items() if name.startswith(root)})
    tower.norm_eps = norm_eps
    return tower.to(dtype), projector.to(dtype)


def patches(*grids: tuple[int, int, int], seed: int = 1) -> tuple[Tensor, Tensor]:
    count = sum(math.prod(grid) for grid in grids)
    pixels = torch.rand(count, 3, 14, 14, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return pixels, torch.tensor(grids, dtype=torch.int64).view(-1, 3)


# Against the fixtures


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("norm_eps", "suffix"), [(2.0**-23, ""), (2.0**-7, "_eps_2m7")], ids=["2^-23", "2^-7"])
def test_tower_and_projector_match_the_fixture(norm_eps: float, suffix: str, dtype: torch.dtype) -> None:
    tower, projector = from_checkpoint(dtype, norm_eps)
    tokens = tower(PIXELS, GRIDS)
    output = projector(tokens)
    assert tokens.dtype == output.dtype == dtype
    expected = GOLDEN[f"tower_out{suffix}"].to(dtype), GOLDEN[f"projector_out{suffix}"].to(dtype)
    torch.testing.assert_close(tokens, expected[0], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)
    torch.testing.assert_close(output, expected[1], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_patch_embedding_matches_the_fixture() -> None:
    tower, _ = from_checkpoint(torch.float32)
    embedded = tower.patch_embed(PIXELS, [tuple(grid) for grid in GRIDS.tolist()])
    torch.testing.assert_close(embedded, GOLDEN["patch_embed_out"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_bf16_is_as_close_to_the_exact_output_as_the_released_code() -> None:
    tower, projector = from_checkpoint(torch.bfloat16)
    output = projector(tower(PIXELS, GRIDS)).detach()
    assert output.dtype == torch.bfloat16
    released = relative_rms(GOLDEN["projector_out_bf16"], GOLDEN["projector_out"])
    assert_close_rms(output, GOLDEN["projector_out"], "projector_out", BF16_MULTIPLE * released)


def test_default_eps_is_that_of_newer_pytorch() -> None:
    tower = VisionTower(vision_config("ckpt_bf16"))
    assert tower.norm_eps == 2.0**-23
    tower.norm_eps = 0.5
    norms = [block_norm for block in tower.encoder.blocks for block_norm in (block.norm0, block.norm1)]
    assert {norm.eps for norm in norms} == {tower.norm_eps} == {0.5}


# Names and sizes of the release


def test_released_names_shapes_and_counts_on_the_meta_device() -> None:
    config = vision_config("released_config.json")
    with torch.device("meta"):
        tower, projector = VisionTower(config), Projector(config)
    found = {f"vision_tower.{name}": list(value.shape) for name, value in tower.state_dict().items()}
    found |= {f"mm_projector.{name}": list(value.shape) for name, value in projector.state_dict().items()}
    released = json.loads((FIXTURES / "released_tensors.json").read_text())
    roots = ("vision_tower.", "mm_projector.")
    assert found == {name: shape for name, (_, shape) in released.items() if name.startswith(roots)}
    assert sum(value.numel() for value in tower.parameters()) == 401_214_464
    assert sum(value.numel() for value in projector.parameters()) == 46_144_512


# What the parts do


def test_rotary_angles_follow_columns_in_even_pairs_and_rows_in_odd_ones() -> None:
    width, rows, columns = 24, 4, 6
    angles = rotary_angles((2, rows, columns), width)
    assert angles.shape == (2 * rows * columns, width // 2)
    for frame, row, column in ((0, 0, 0), (0, 3, 5), (1, 2, 1)):
        found = angles[(frame * rows + row) * columns + column]
        for pair in range(width // 2):
            frequency = 10000 ** (-4 * (pair // 2) / width)
            expected = (row if pair % 2 else column) * frequency
            assert found[pair].item() == pytest.approx(expected, rel=RELATIVE_RMS[torch.float64])


def test_frame_0_of_a_video_differs_from_a_still_image_by_its_time() -> None:
    tower, _ = from_checkpoint(torch.float64)
    position = tower.patch_embed.pos_emb
    still, video = position((1, 4, 4)), position((3, 4, 4)).view(3, 16, -1)
    half = still.shape[1] // 2
    torch.testing.assert_close(
        video[0] - still, torch.cat((torch.zeros(half), torch.ones(half))).double().expand(16, -1)
    )
    omega = 10000.0 ** (-torch.arange(half).double() / half)
    time = torch.cat((torch.sin(2 * omega), torch.cos(2 * omega)))
    torch.testing.assert_close(video[2] - still, time.expand(16, -1))


def test_positions_of_the_full_grid_are_the_weights_themselves() -> None:
    position = VisionTower(vision_config("ckpt_bf16")).patch_embed.pos_emb
    torch.nn.init.normal_(position.weight)
    assert torch.equal(position((1, 8, 8)), position.weight.flatten(0, 1))
    assert not torch.equal(position((1, 4, 16)), position.weight.flatten(0, 1))


def test_each_medium_gives_the_same_alone_and_among_others() -> None:
    tower, projector = from_checkpoint(torch.float64)
    grids = [tuple(grid) for grid in GRIDS.tolist()]
    together = projector(tower(PIXELS, GRIDS)).detach()
    pixels = PIXELS.split([math.prod(grid) for grid in grids])
    alone = [projector(tower(part, torch.tensor([grid]))) for part, grid in zip(pixels, grids, strict=True)]
    assert [len(part) for part in alone] == [6, 4, 16, 6]
    assert_close_rms(together, torch.cat(alone).detach(), "projector_out", RELATIVE_RMS[torch.float64])


def test_a_patch_is_not_seen_by_other_media() -> None:
    tower, _ = from_checkpoint(torch.float32)
    pixels, grids = patches((1, 4, 4), (2, 2, 4), (1, 2, 2))
    before = tower(pixels, grids)
    pixels[16:32] = torch.nan  # the second medium
    after = tower(pixels, grids)
    assert after[4:6].isnan().all()
    assert torch.equal(after[:4], before[:4]) and torch.equal(after[6:], before[6:])


def test_every_patch_of_a_medium_is_seen_in_all_its_frames() -> None:
    tower, _ = from_checkpoint(torch.float32)
    pixels, grids = patches((3, 4, 4))
    before = tower(pixels, grids)
    pixels[-1] += 0.5
    assert ((tower(pixels, grids) - before).abs().amax((1, 2)) > 0).all()


def test_groups_are_2_by_2_patches_row_by_row() -> None:
    tower, _ = from_checkpoint(torch.float32)
    tower.encoder.blocks = torch.nn.ModuleList()
    pixels, grids = patches((2, 4, 6))
    flat = tower.encoder.final_layernorm(tower.patch_embed(pixels, [(2, 4, 6)])).view(2, 4, 6, -1).mean(0)
    group = tower(pixels, grids)[4]  # second row of groups, second column
    expected = torch.stack((flat[2, 2], flat[2, 3], flat[3, 2], flat[3, 3]))
    torch.testing.assert_close(group, expected, atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention_holds_no_matrix_of_tokens_by_tokens(dtype: torch.dtype) -> None:
    tower, _ = from_checkpoint(dtype)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # anything else raises RuntimeError
        assert tower(PIXELS, GRIDS).isfinite().all()


def test_no_media_give_no_tokens() -> None:
    tower, projector = from_checkpoint(torch.bfloat16)
    tokens = tower(*patches())
    assert tokens.shape == (0, 4, 32) and tokens.dtype == torch.bfloat16
    assert projector(tokens).shape == (0, 64)


def test_grids_may_be_int32() -> None:
    tower, _ = from_checkpoint(torch.float32)
    pixels, grids = patches((1, 2, 2))
    assert torch.equal(tower(pixels, grids.int()), tower(pixels, grids))


def test_every_parameter_has_a_gradient_that_agrees_with_finite_differences() -> None:
    config = dataclasses.replace(
        vision_config("ckpt_bf16"),
        patch_size=2,
        vt_hidden_size=8,
        mm_hidden_size=8,
        qkv_hidden_size=16,
        vt_intermediate_size=8,
        text_hidden_size=4,
        vt_num_hidden_layers=1,
    )
    torch.manual_seed(2)
    tower, projector = VisionTower(config).double(), Projector(config).double()
    torch.nn.init.normal_(tower.patch_embed.pos_emb.weight)
    pixels, grids = torch.randn(16, 3, 2, 2, dtype=torch.float64), torch.tensor([[1, 4, 2], [2, 2, 2]])
    parameters = (*tower.parameters(), *projector.parameters())
    # gradcheck moves its inputs in place, and these are the modules' own parameters.
    assert torch.autograd.gradcheck(lambda *_: projector(tower(pixels, grids)), parameters, fast_mode=True)
    gradients = torch.autograd.grad(projector(tower(pixels, grids)).pow(3).sum(), parameters)
    assert all(gradient.abs().max() > 0 for gradient in gradients)


# Refusals


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        (
            [(1, 2, 2), (1, 4, 4)],
            "vision_tower: grid_thws adds up to 20 patches and pixel_values has 32; give one row of grid_thws for each "
            "medium, and all of its patches.",
        ),
        (
            [(1, 3, 4)],
            "vision_tower: grid_thws[0] has 3 rows and 4 columns of patches; both must be positive multiples of 2, "
            "so pad the image to a multiple of 28 pixels.",
        ),
        (
            [(1, 4, 4), (1, 4, 5)],
            "vision_tower: grid_thws[1] has 4 rows and 5 columns of patches; both must be positive multiples of 2, "
            "so pad the image to a multiple of 28 pixels.",
        ),
        (
            [(1, 0, 4)],
            "vision_tower: grid_thws[0] has 0 rows and 4 columns of patches; both must be positive multiples of 2, "
            "so pad the image to a multiple of 28 pixels.",
        ),
        (
            [(8, 2, 2)],
            "vision_tower: grid_thws[0] has 8 frames; a medium has 1 to 4, the init_pos_emb_time of the config, "
            "so split it.",
        ),
        (
            [(0, 2, 2)],
            "vision_tower: grid_thws[0] has 0 frames; a medium has 1 to 4, the init_pos_emb_time of the config, "
            "so split it.",
        ),
    ],
)
def test_grids_that_do_not_fit_are_refused(grids: list, message: str) -> None:
    tower, _ = from_checkpoint(torch.float32)
    with pytest.raises(ValueError) as error:
        tower(torch.zeros(32, 3, 14, 14), torch.tensor(grids))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("pixels", "grids", "message"),
    [
        (
            torch.zeros(4, 3, 14, 16),
            torch.tensor([[1, 2, 2]]),
            "vision_tower: pixel_values must have the shape [n, 3, 14, 14], got [4, 3, 14, 16].",
        ),
        (
            torch.zeros(4, 3, 14, 14, dtype=torch.uint8),
            torch.tensor([[1, 2, 2]]),
            "vision_tower: pixel_values must be of dtype float32, bfloat16, float16, float64, got uint8.",
        ),
        (
            torch.zeros(4, 3, 14, 14),
            torch.tensor([1, 2, 2]),
            "vision_tower: grid_thws must have the shape [m, 3], got [3].",
        ),
        (
            torch.zeros(4, 3, 14, 14),
            torch.tensor([[1.0, 2.0, 2.0]]),
            "vision_tower: grid_thws must be of dtype int32, int64, got float32.",
        ),
    ],
)
def test_inputs_of_a_wrong_form_are_refused(pixels: Tensor, grids: Tensor, message: str) -> None:
    tower, _ = from_checkpoint(torch.float32)
    with pytest.raises(ValueError) as error:
        tower(pixels, grids)
    assert str(error.value) == message
