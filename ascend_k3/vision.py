"""MoonViT-V2, which turns patches of images into tokens, and the projector to the width of the text model.

A medium is an image (t = 1) or a few frames (t > 1) of h rows and w columns of patches. The patches of all media of a
call are packed one after another, each in the order frame, row, column; only attention looks at media one by one.

Source: `vision_config` of the release and its classes; names of modules are those of its tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ascend_k3.config import VisionConfig
from ascend_k3.norm import RMSNorm
from ascend_k3.ops import checks

Grid = tuple[int, int, int]  # frames, rows, columns

MERGE = 2  # patches that become one token, along each side
PERIOD_BASE = 10000.0  # of the rotary and of the time frequencies
# The released tower has nn.RMSNorm(eps=None). PyTorch 2.10 and later take 2^-23 for it in bf16 too; 2.6 took 2^-7.
NORM_EPS = 2.0**-23


class PositionEmbedding(nn.Module):
    """weight [H, W, D], stretched bilinearly to a medium's rows and columns; with several frames, plus their time.

    The time of frame i is [sin(i * f), cos(i * f)], f_j = 10000^(-j / (D / 2)) for j < D / 2. A still image has none:
    it is not the same as frame 0 of a video, which gets [0, ..., 1, ...].
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.zeros(config.init_pos_emb_height, config.init_pos_emb_width, config.vt_hidden_size)
        )

    def forward(self, grid: Grid) -> Tensor:
        """[t * h * w, D] for one medium."""
        frames, rows, columns = grid
        position: Tensor = self.weight
        if (rows, columns) != tuple(position.shape[:2]):
            stretched = functional.interpolate(
                position.permute(2, 0, 1).unsqueeze(0), size=(rows, columns), mode="bilinear", align_corners=False
            )
            position = stretched.squeeze(0).permute(1, 2, 0)
        position = position.flatten(0, 1)
        if frames == 1:
            return position
        width = position.shape[1]
        angle = torch.arange(frames, dtype=torch.float64)[:, None] * _frequencies(width // 2, width // 2)
        time = torch.cat((angle.sin(), angle.cos()), -1).to(position)
        return (position + time.unsqueeze(1)).flatten(0, 1)


class PatchEmbedding(nn.Module):
    """Pixels [n, 3, P, P] -> [n, D]: a linear map of each patch, plus its position."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        patch = config.patch_size
        self.proj = nn.Conv2d(3, config.vt_hidden_size, patch, patch, bias=False)
        self.pos_emb = PositionEmbedding(config)

    def forward(self, pixel_values: Tensor, grids: list[Grid]) -> Tensor:
        weight = self.proj.weight
        x = functional.linear(pixel_values.to(weight.dtype).flatten(1), weight.flatten(1))
        return x + torch.cat([self.pos_emb(grid) for grid in grids])


class VisionMLP(nn.Module):
    """fc1(gelu(fc0(x))), GELU by its tanh form."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.fc0 = nn.Linear(config.vt_hidden_size, config.vt_intermediate_size, bias=False)
        self.fc1 = nn.Linear(config.vt_intermediate_size, config.vt_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc1(functional.gelu(self.fc0(x), approximate="tanh"))


class VisionBlock(nn.Module):
    """x + wo(attention(wqkv(norm0(x)))), then x + mlp(norm1(x)); each patch sees every patch of its own medium."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        width = config.vt_hidden_size
        self.heads = config.vt_num_attention_heads
        self.norm0 = RMSNorm(width, NORM_EPS)
        self.norm1 = RMSNorm(width, NORM_EPS)
        self.wqkv = nn.Linear(width, 3 * config.qkv_hidden_size, bias=False)
        self.wo = nn.Linear(config.qkv_hidden_size, width, bias=False)
        self.mlp = VisionMLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, lengths: list[int]) -> Tensor:
        """x [n, D]; cos, sin [n, pairs] of each patch; lengths: patches of each medium."""
        x = x + self.wo(self._attention(self.wqkv(self.norm0(x)), cos, sin, lengths))
        return x + self.mlp(self.norm1(x))

    def _attention(self, qkv: Tensor, cos: Tensor, sin: Tensor, lengths: list[int]) -> Tensor:
        query, key, value = qkv.view(len(qkv), 3, self.heads, -1).unbind(1)
        query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
        # [1, heads, tokens, width]: with four axes PyTorch has an attention that never holds tokens x tokens scores.
        packed = [part.transpose(0, 1).unsqueeze(0).split(lengths, dim=2) for part in (query, key, value)]
        outputs = [functional.scaled_dot_product_attention(*medium) for medium in zip(*packed, strict=True)]
        return torch.cat(outputs, dim=2).squeeze(0).transpose(0, 1).flatten(1)


class VisionEncoder(nn.Module):
    """The blocks and the last norm."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.head_width = config.qkv_hidden_size // config.vt_num_attention_heads
        self.blocks = nn.ModuleList([VisionBlock(config) for _ in range(config.vt_num_hidden_layers)])
        self.final_layernorm = RMSNorm(config.vt_hidden_size, NORM_EPS)

    def forward(self, x: Tensor, grids: list[Grid]) -> Tensor:
        angle = torch.cat([rotary_angles(grid, self.head_width) for grid in grids])
        dtype = torch.promote_types(x.dtype, torch.float32)
        cos, sin = angle.cos().to(x.device, dtype), angle.sin().to(x.device, dtype)
        lengths = [frames * rows * columns for frames, rows, columns in grids]
        for block in self.blocks:
            x = block(x, cos, sin, lengths)
        return self.final_layernorm(x)


class VisionTower(nn.Module):
    """MoonViT-V2: `norm_eps` may be set, to 2**-7 for what ran on an older PyTorch (see `NORM_EPS`)."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbedding(config)
        self.encoder = VisionEncoder(config)

    @property
    def norm_eps(self) -> float:
        """eps of every RMS norm of the tower."""
        return self.encoder.final_layernorm.eps

    @norm_eps.setter
    def norm_eps(self, eps: float) -> None:
        for module in self.modules():
            if isinstance(module, RMSNorm):
                module.eps = eps

    def forward(self, pixel_values: Tensor, grid_thws: Tensor) -> Tensor:
        """Tokens of all media: the mean over frames, then groups of 2 x 2 patches.

        Args:
            pixel_values: [n, 3, P, P] floating point, (x / 255 - 0.5) / 0.5, converted to the weights' dtype.
            grid_thws: [m, 3] int32 or int64: frames, rows and columns of patches of each medium; n patches in all.
        Returns: [sum of h * w / 4, 4, D] of the weights' dtype; the four of a group are its rows, left to right.
        Raises: ValueError for a wrong shape or dtype, an odd number of rows or columns, too many frames, or grids that
            do not add up to n.
        """
        grids = self._grids(pixel_values, grid_thws)
        if not grids:
            return self.patch_embed.proj.weight.new_empty(0, MERGE * MERGE, self.config.vt_hidden_size)
        x = self.encoder(self.patch_embed(pixel_values, grids), grids)
        media = x.split([frames * rows * columns for frames, rows, columns in grids])
        return torch.cat([_merge(medium, grid) for medium, grid in zip(media, grids, strict=True)])

    def _grids(self, pixel_values: Tensor, grid_thws: Tensor) -> list[Grid]:
        patch, most = self.config.patch_size, self.config.init_pos_emb_time
        checks.shape("vision_tower", "pixel_values", pixel_values, ("n", 3, patch, patch))
        checks.dtype("vision_tower", "pixel_values", pixel_values)
        checks.shape("vision_tower", "grid_thws", grid_thws, ("m", 3))
        checks.dtype("vision_tower", "grid_thws", grid_thws, checks.INTEGERS)
        grids: list[Grid] = [(frames, rows, columns) for frames, rows, columns in grid_thws.tolist()]
        for index, (frames, rows, columns) in enumerate(grids):
            if not 1 <= frames <= most:
                raise ValueError(
                    f"vision_tower: grid_thws[{index}] has {frames} frames; a medium has 1 to {most}, "
                    "the init_pos_emb_time of the config, so split it."
                )
            if rows < MERGE or columns < MERGE or rows % MERGE or columns % MERGE:
                raise ValueError(
                    f"vision_tower: grid_thws[{index}] has {rows} rows and {columns} columns of patches; both must be "
                    f"positive multiples of {MERGE}, so pad the image to a multiple of {MERGE * patch} pixels."
                )
        total = sum(frames * rows * columns for frames, rows, columns in grids)
        if total != len(pixel_values):
            raise ValueError(
                f"vision_tower: grid_thws adds up to {total} patches and pixel_values has {len(pixel_values)}; "
                "give one row of grid_thws for each medium, and all of its patches."
            )
        return grids


class Projector(nn.Module):
    """Four patches [n, 4, D] -> one token of the text model [n, text_hidden]: rms(linear(gelu(linear(x))))."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        width = MERGE * MERGE * config.mm_hidden_size
        self.proj = nn.Sequential(
            nn.Linear(width, width, bias=False), nn.GELU(), nn.Linear(width, config.text_hidden_size, bias=False)
        )
        self.post_norm = RMSNorm(config.text_hidden_size, config.projector_ln_eps)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.post_norm(self.proj(tokens.flatten(1)))


def rotary_angles(grid: Grid, head_width: int) -> Tensor:
    """Angles [t * h * w, head_width / 2], float64: pair 2i turns by column * f_i, pair 2i + 1 by row * f_i.

    f_i = 10000^(-4 i / head_width); the same in every frame.
    """
    frames, rows, columns = grid
    frequency = _frequencies(head_width // 4, head_width / 4)
    row = torch.arange(rows, dtype=torch.float64)[:, None, None] * frequency
    column = torch.arange(columns, dtype=torch.float64)[None, :, None] * frequency
    angle = torch.stack(torch.broadcast_tensors(column, row), -1)
    return angle.flatten(2).flatten(0, 1).repeat(frames, 1)


def _frequencies(count: int, octave: float) -> Tensor:
    """10000^(-j / octave) for j < count, float64."""
    return PERIOD_BASE ** (-torch.arange(count, dtype=torch.float64) / octave)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [n, heads, width], neighbours (2j, 2j + 1) turned as complex numbers by the angle of pair j; one rounding."""
    real, imaginary = x.to(cos.dtype).unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned = torch.stack((real * cos - imaginary * sin, real * sin + imaginary * cos), -1)
    return turned.flatten(-2).to(x.dtype)


def _merge(x: Tensor, grid: Grid) -> Tensor:
    """One medium [t * h * w, D] -> [h * w / 4, 4, D]: the mean over frames, cut into groups of 2 x 2 patches."""
    frames, rows, columns = grid
    image = x.view(frames, rows // MERGE, MERGE, columns // MERGE, MERGE, -1).mean(0)
    return image.transpose(1, 2).flatten(2, 3).flatten(0, 1)
