// LoadData 3D: a block of the matrix that img2col makes of a feature map in L1, to L0A or L0B. Sources: the pages LoadData
// (3D), SetFmatrix, SetLoadDataPaddingValue, SetLoadDataRepeat, SetLoadDataBoundary, LoadDataWithStride.
#pragma once

#include "cube_load.h"

namespace AscendC {

// ---- LoadData 3D ---------------------------------------------------------------------------------------------------

constexpr int32_t PAD_SIZE = 4;

struct IsResetLoad3dConfig {
    bool isSetFMatrix = true, isSetPadding = true;
};
constexpr IsResetLoad3dConfig IS_RESER_LOAD3D_DEFAULT_CONFIG = {true, true};

enum class FmatrixMode : uint8_t { FMATRIX_LEFT = 0, FMATRIX_RIGHT = 1 };

template <class T>
struct LoadData3DParamsV2 {
    LoadData3DParamsV2() = default;
    LoadData3DParamsV2(const uint8_t pads[PAD_SIZE], uint16_t l1H, uint16_t l1W, uint16_t channelSize,
                       uint16_t kExtension, uint16_t mExtension, uint16_t kStartPt, uint16_t mStartPt, uint8_t strideW,
                       uint8_t strideH, uint8_t filterW, uint8_t filterH, uint8_t dilationFilterW,
                       uint8_t dilationFilterH, bool enTranspose, bool enSmallK, T padValue, bool filterSizeW = false,
                       bool filterSizeH = false, bool fMatrixCtrl = false)
        : l1H(l1H), l1W(l1W), channelSize(channelSize), kExtension(kExtension), mExtension(mExtension),
          kStartPt(kStartPt), mStartPt(mStartPt), strideW(strideW), strideH(strideH), filterW(filterW),
          filterH(filterH), dilationFilterW(dilationFilterW), dilationFilterH(dilationFilterH),
          enTranspose(enTranspose), enSmallK(enSmallK), padValue(padValue), filterSizeW(filterSizeW),
          filterSizeH(filterSizeH), fMatrixCtrl(fMatrixCtrl) {
        std::copy(pads, pads + PAD_SIZE, padList);
    }
    uint8_t padList[PAD_SIZE] = {0};  // left, right, top, bottom
    uint16_t l1H = 0, l1W = 0, channelSize = 0, kExtension = 0, mExtension = 0, kStartPt = 0, mStartPt = 0;
    uint8_t strideW = 1, strideH = 1, filterW = 1, filterH = 1, dilationFilterW = 1, dilationFilterH = 1;
    bool enTranspose = false, enSmallK = false;
    T padValue{};
    bool filterSizeW = false, filterSizeH = false, fMatrixCtrl = false;
};

struct LoadDataRepeatParam {
    LoadDataRepeatParam() = default;
    LoadDataRepeatParam(uint16_t repeatStride, uint8_t repeatTime, uint8_t repeatMode, uint16_t dstStride = 0)
        : repeatStride(repeatStride), repeatTime(repeatTime), repeatMode(repeatMode), dstStride(dstStride) {}
    uint16_t repeatStride = 0;
    uint8_t repeatTime = 1, repeatMode = 0;
    uint16_t dstStride = 0;  // dav-3510
};
struct LoadDataRepeatParamWithStride : LoadDataRepeatParam {
    using LoadDataRepeatParam::LoadDataRepeatParam;
};

/// Height, width and padding of the feature map for LoadData 3D with isSetFMatrix false. Source: SetFmatrix.
inline void SetFmatrix(uint16_t l1H, uint16_t l1W, const uint8_t padList[PAD_SIZE], const FmatrixMode& fmatrixMode,
                       Site at = Site::here()) {
    const char* const call = "SetFmatrix";
    if (!cube_impl::in_range(l1H, 1, 32767, "l1H", call, at) || !cube_impl::in_range(l1W, 1, 32767, "l1W", call, at) ||
        !emulator::require(fmatrixMode == FmatrixMode::FMATRIX_LEFT, "argument", at, call,
                           "only FMATRIX_LEFT is supported."))
        return;
    uint64_t packed = l1W | static_cast<uint64_t>(l1H) << 16;
    for (int i = 0; i < PAD_SIZE; ++i) packed |= static_cast<uint64_t>(padList[i]) << (32 + 8 * i);
    emulator::core().control.fmatrix = packed;
    emulator::scalar_work(1);
}
/// What LoadData 3D with isSetPadding false pads with. Source: SetLoadDataPaddingValue.
template <class T>
void SetLoadDataPaddingValue(const T padValue) {
    uint64_t bits = 0;
    std::memcpy(&bits, &padValue, sizeof(T));
    emulator::core().control.padding_value = bits;
    emulator::scalar_work(1);
}
/// Repeats of LoadData 3D and, on dav-3510, fractals from one column of the result to the next. Repeats beyond one are
/// not modelled. Source: SetLoadDataRepeat.
inline void SetLoadDataRepeat(const LoadDataRepeatParam& p, Site at = Site::here()) {
    if (!cube_impl::in_range(p.repeatMode, 0, 1, "repeatMode", "SetLoadDataRepeat", at)) return;
    emulator::core().control.load_repeat = p.repeatStride | static_cast<uint64_t>(p.repeatTime) << 16 |
                                           static_cast<uint64_t>(p.repeatMode) << 24 |
                                           static_cast<uint64_t>(p.dstStride) << 32 | 1ull << 63;
    emulator::scalar_work(1);
}
/// The same under its dav-3510 name. Source: SetLoadDataRepeatWithStride.
inline void SetLoadDataRepeatWithStride(const LoadDataRepeatParamWithStride& p, Site at = Site::here()) {
    SetLoadDataRepeat(p, at);
}
/// dav-2201: where the source wraps around; 0: nowhere, the only value modelled. Source: SetLoadDataBoundary.
inline void SetLoadDataBoundary(uint32_t boundaryValue, Site at = Site::here()) {
    if (emulator::require(!is_3510, "argument", at, "SetLoadDataBoundary",
                          "dav-3510 has no boundary; remove the call."))
        emulator::require(boundaryValue == 0, "argument", at, "SetLoadDataBoundary",
                          "only 0 (no boundary) is modelled.");
    emulator::scalar_work(1);
}

namespace cube_impl {

/// img2col: row m of the matrix is an output position, column k runs over (c1, filter row, filter column, c0).
struct Image {
    int64_t height, width, pad_left, pad_right, pad_top, pad_bottom, stride_w, stride_h, filter_w, filter_h, dilation_w,
        dilation_h, channel_groups;
    int64_t columns() const {
        return (width + pad_left + pad_right - ((filter_w - 1) * dilation_w + 1)) / stride_w + 1;
    }
    int64_t lines() const { return (height + pad_top + pad_bottom - ((filter_h - 1) * dilation_h + 1)) / stride_h + 1; }
    /// Byte of the row of C0 for matrix row m and column group k; -1: padding.
    int64_t row(int64_t m, int64_t k) const {
        const int64_t tap = k % (filter_w * filter_h), channel = k / (filter_w * filter_h);
        const int64_t h = m / columns() * stride_h + tap / filter_w * dilation_h - pad_top;
        const int64_t w = m % columns() * stride_w + tap % filter_w * dilation_w - pad_left;
        if (h < 0 || h >= height || w < 0 || w >= width) return -1;
        return ((channel * height + h) * width + w) * emu::C0_BYTES;
    }
    bool plain() const {
        return filter_w == 1 && filter_h == 1 && stride_w == 1 && stride_h == 1 &&
               pad_left + pad_right + pad_top + pad_bottom == 0;
    }
};

/// `p` without its padding value, which is in the padding register by now.
template <int bits>
void load_image(const char* call, const Place dst, const Place src, const LoadData3DParamsV2<uint8_t> p, Site at) {
    using T = std::conditional_t<bits == 8, uint8_t, std::conditional_t<bits == 16, uint16_t, uint32_t>>;
    using emulator::Access;
    using emulator::Space;
    const auto& control = emulator::core().control;
    const auto pad = [&control](int i) { return static_cast<int64_t>(control.fmatrix >> (32 + 8 * i) & 255); };
    const int64_t filter_w = p.filterW + (p.filterSizeW ? 256 : 0), filter_h = p.filterH + (p.filterSizeH ? 256 : 0);
    constexpr int64_t c0 = columns_of(bits);
    const Image image{static_cast<int64_t>(control.fmatrix >> 16 & 0xffff),
                      static_cast<int64_t>(control.fmatrix & 0xffff),
                      pad(0),
                      pad(1),
                      pad(2),
                      pad(3),
                      p.strideW,
                      p.strideH,
                      filter_w,
                      filter_h,
                      p.dilationFilterW,
                      p.dilationFilterH,
                      p.channelSize / c0};
    const uint64_t repeat = control.load_repeat;
    if (image.height == 0 || image.width == 0 || p.channelSize == 0 || p.kExtension == 0 || p.mExtension == 0 ||
        filter_w == 0 || filter_h == 0 || (repeat >> 16 & 255) == 0)
        return;  // documented: no operation
    const bool to_b = dst.space() == Space::L0B, transpose = to_b || p.enTranspose;
    const auto number = [](int64_t value) { return std::to_string(value); };
    if (!legal_load(dst.space(), src.space(), call, at) || !in_range(p.strideW, 1, 63, "strideW", call, at) ||
        !in_range(p.strideH, 1, 63, "strideH", call, at) ||
        !in_range(p.dilationFilterW, 1, 255, "dilationFilterW", call, at) ||
        !in_range(p.dilationFilterH, 1, 255, "dilationFilterH", call, at) ||
        !emulator::require(
            p.channelSize % c0 == 0, "argument", at, call,
            "channelSize is " + number(p.channelSize) + "; only multiples of " + number(c0) + " are modelled.") ||
        !emulator::require(p.kStartPt % c0 == 0, "argument", at, call,
                           "kStartPt is " + number(p.kStartPt) + "; it has to be a multiple of " + number(c0) + ".") ||
        !emulator::require((repeat >> 16 & 255) == 1, "argument", at, call,
                           "repeatTime of SetLoadDataRepeat is " + number(static_cast<int64_t>(repeat >> 16 & 255)) +
                               "; only one repeat is modelled.") ||
        !emulator::require(!p.enSmallK && !p.fMatrixCtrl, "argument", at, call,
                           "enSmallK and fMatrixCtrl have to be false.") ||
        !emulator::require(is_3510 || sizeof(T) > 1 || !transpose, "argument", at, call,
                           "dav-2201 does not transpose 8-bit types on this way; take LoadDataWithTranspose.") ||
        !emulator::require(
            !is_3510 || (repeat >> 63 && (repeat >> 32 & 0xffff)), "argument", at, call,
            "on dav-3510 dstStride has to be set with SetLoadDataRepeat or SetLoadDataRepeatWithStride before."))
        return;
    const int64_t all_rows = image.lines() * image.columns(), all_groups = image.channel_groups * filter_w * filter_h;
    const int64_t k_first = p.kStartPt / c0, k_groups = (p.kExtension + c0 - 1) / c0;
    if (!emulator::require(image.lines() > 0 && image.columns() > 0, "argument", at, call,
                           "the filter is larger than the padded feature map.") ||
        !emulator::require(k_first + k_groups <= all_groups, "argument", at, call,
                           "kStartPt + kExtension is " + number(p.kStartPt + p.kExtension) + "; the matrix has " +
                               number(all_groups * c0) + " columns.") ||
        !emulator::require(p.mStartPt + p.mExtension <= (all_rows + 15) / 16 * 16, "argument", at, call,
                           "mStartPt + mExtension is " + number(p.mStartPt + p.mExtension) + "; the matrix has " +
                               number(all_rows) + " rows."))
        return;

    // Fractals of the destination: block of 16 rows `row_block`, group of C0 columns `group`.
    const int64_t m_count = p.mExtension, k_count = k_groups * c0, rows = transpose ? k_count : m_count;
    const int64_t row_blocks = (rows + 15) / 16;
    // K of a transposed matrix of 32 bits comes in pairs of groups: it is aligned to 16 (kDirectionAlign of Mmad).
    const int64_t groups = !transpose ? k_groups : sizeof(T) == 4 ? (m_count + 15) / 16 * 2 : (m_count + c0 - 1) / c0;
    const bool zz = !is_3510 && !to_b;
    const int64_t block_pitch = zz ? groups * emu::FRACTAL_BYTES : emu::FRACTAL_BYTES;
    const int64_t group_pitch =
        zz ? emu::FRACTAL_BYTES : (is_3510 ? static_cast<int64_t>(repeat >> 32 & 0xffff) : row_blocks) * emu::FRACTAL_BYTES;
    emulator::Instruction instruction = load_instruction(call, at, dst.space(), row_blocks * groups * emu::FRACTAL_BYTES);
    const int64_t m_first = p.mStartPt, m_last = std::min(m_first + m_count, all_rows);
    Access from;
    if (image.plain()) {
        from =
            repeated(src.bytes(Access::Kind::Read, "src", (k_first * image.height * image.width + m_first) * emu::C0_BYTES,
                               (m_last - m_first) * emu::C0_BYTES),
                     k_groups, image.height * image.width * emu::C0_BYTES);
    } else {
        const int64_t plane = image.height * image.width * emu::C0_BYTES, taps = filter_w * filter_h;
        const int64_t first = k_first / taps, last = (k_first + k_groups - 1) / taps;
        from = src.bytes(Access::Kind::Read, "src", first * plane, (last - first + 1) * plane);
    }
    from.carries = true;
    Access to = repeated(dst.bytes(Access::Kind::Write, "dst", 0, 16 * emu::C0_BYTES, emu::FRACTAL_BYTES), groups, group_pitch,
                         rows / 16, block_pitch);
    instruction.accesses = {from, to};
    if (rows % 16)
        instruction.accesses.push_back(repeated(dst.bytes(Access::Kind::Write, "dst", rows / 16 * block_pitch,
                                                          rows % 16 * emu::C0_BYTES, rows < 16 ? emu::FRACTAL_BYTES : 1),
                                                groups, group_pitch));
    T padding;
    std::memcpy(&padding, &control.padding_value, sizeof(T));
    from.begin = src.address();
    emulator::issue(std::move(instruction), [=] {
        Access cell = to;
        cell.runs = cell.groups = 1;
        const auto element = [=](int64_t row, int64_t column) {
            return row / 16 * block_pitch + column / c0 * group_pitch + row % 16 * emu::C0_BYTES +
                   column % c0 * static_cast<int64_t>(sizeof(T));
        };
        const auto undefined = [&](int64_t row, int64_t column, int64_t bytes) {
            cell.begin = dst.address() + element(row, column), cell.bytes = bytes;
            emulator::forget(cell);
        };
        const bool whole =
            emulator::unwritten(from.space, from.begin,
                                from.begin + image.channel_groups * image.height * image.width * emu::C0_BYTES)
                .empty();
        const int64_t reach = transpose ? groups * c0 : m_count;  // a transposed matrix has its last groups whole
        for (int64_t k = 0; k < k_groups; ++k)
            for (int64_t m = 0; m < reach; ++m) {
                T padded[c0];
                const bool inside = m < m_count && m_first + m < all_rows;
                const int64_t byte = inside ? image.row(m_first + m, k_first + k) : -1;
                const T* row = padded;
                if (byte >= 0)
                    row = reinterpret_cast<const T*>(src.host + byte);
                else
                    for (T& value : padded) value = padding;
                if (transpose)
                    for (int64_t i = 0; i < c0; ++i) std::memcpy(dst.host + element(k * c0 + i, m), row + i, sizeof(T));
                else
                    std::memcpy(dst.host + element(m, k * c0), row, emu::C0_BYTES);
                const bool missing =
                    !inside ||
                    (!whole && byte >= 0 &&
                     !emulator::unwritten(from.space, from.begin + byte, from.begin + byte + emu::C0_BYTES).empty());
                if (!missing) continue;
                if (transpose)
                    for (int64_t i = 0; i < c0; ++i) undefined(k * c0 + i, m, sizeof(T));
                else
                    undefined(m, k * c0, emu::C0_BYTES);
            }
    });
}

template <class T>
constexpr bool load_3d_type() {
    return one_of<T, int8_t, uint8_t, half, bfloat16_t, int32_t, uint32_t, float>() || (is_3510 && fp8<T>());
}

/// Sets the registers that the call sets itself, and loads.
template <class T>
void load_image_as(const char* call, const LocalTensor<T>& dst, const LocalTensor<T>& src,
                   const LoadData3DParamsV2<T>& p, IsResetLoad3dConfig config, Site at) {
    EMULATOR_USES("asc_uses_cube");
    auto& control = emulator::core().control;
    if (config.isSetFMatrix) {
        control.fmatrix = p.l1W | static_cast<uint64_t>(p.l1H) << 16;
        for (int i = 0; i < PAD_SIZE; ++i) control.fmatrix |= static_cast<uint64_t>(p.padList[i]) << (32 + 8 * i);
    }
    if (config.isSetPadding) {
        control.padding_value = 0;
        std::memcpy(&control.padding_value, &p.padValue, sizeof(T));
    }
    load_image<bits_of<T>()>(
        call, place(dst), place(src),
        LoadData3DParamsV2<uint8_t>(p.padList, p.l1H, p.l1W, p.channelSize, p.kExtension, p.mExtension, p.kStartPt,
                                    p.mStartPt, p.strideW, p.strideH, p.filterW, p.filterH, p.dilationFilterW,
                                    p.dilationFilterH, p.enTranspose, p.enSmallK, 0, p.filterSizeW, p.filterSizeH,
                                    p.fMatrixCtrl),
        at);
}

}  // namespace cube_impl

/// A block of the matrix that img2col makes of an NC1HWC0 feature map in L1: with a 1 x 1 filter, stride 1 and no
/// padding the NZ matrix itself, l1H * l1W rows of channelSize columns. mExtension rows from mStartPt, kExtension
/// columns from kStartPt. To L0A as it is or, with enTranspose, transposed; to L0B always transposed. Source: LoadData
/// (3D).
template <class T, const IsResetLoad3dConfig& config = IS_RESER_LOAD3D_DEFAULT_CONFIG, class U = T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2<U>& p,
              Site at = Site::here()) {
    static_assert(std::is_same_v<T, U>,
                  "LoadData with LoadData3DParamsV2: the parameters have to be of the tensor's type");
    static_assert(cube_impl::load_3d_type<T>(),
                  "LoadData with LoadData3DParamsV2: this element type does not exist for it on this SoC");
    cube_impl::load_image_as("LoadData", dst, src, p, config, at);
}
/// The same, dav-3510 only. Source: LoadDataWithStride.
template <class T, const IsResetLoad3dConfig& config = IS_RESER_LOAD3D_DEFAULT_CONFIG, class U = T>
void LoadDataWithStride(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2<U>& p,
                        Site at = Site::here()) {
    static_assert(cube_impl::on_3510<T>(), "LoadDataWithStride exists on dav-3510 only");
    static_assert(std::is_same_v<T, U>, "LoadDataWithStride: the parameters have to be of the tensor's type");
    static_assert(cube_impl::load_3d_type<T>(), "LoadDataWithStride: this element type does not exist for it");
    cube_impl::load_image_as("LoadDataWithStride", dst, src, p, config, at);
}

}  // namespace AscendC
