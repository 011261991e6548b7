// SPDX-License-Identifier: Apache-2.0

#include "kernels/codec/encoded_vectors.h"

#include <algorithm>
#include <cmath>

#include "kernels/codec/topk_codec.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::codec {
namespace {

// Number of elements of a vector that are processed at a time. As fp32 they are 16 KiB, which fit
// into the first-level cache.
constexpr int64_t kPiece = params::kWholeBlocks;
static_assert(kPiece / 4 % params::kInt8Block == 0 && kPiece / 4 % params::kInt4Block == 0);

// Calls piece(begin, size, bytes) for each piece of `piece_elements` elements. `bytes` is the
// number of encoded bytes before the piece.
template <typename Piece>
void ForEachPieceOf(int64_t piece_elements, params::Encoding encoding, int64_t n, Piece piece) {
  for (int64_t begin = 0; begin < n; begin += piece_elements) {
    piece(begin, std::min(piece_elements, n - begin), params::EncodedBytes(encoding, begin));
  }
}

template <typename Piece>
void ForEachPiece(params::Encoding encoding, int64_t n, Piece piece) {
  ForEachPieceOf(kPiece, encoding, n, piece);
}

kernels::Rounding RoundingFrom(kernels::Rounding rounding, int64_t begin) {
  rounding.first_element += begin;
  return rounding;
}

// Computes sum = scale * values + residual. A null `residual` counts as 0.
void AddResidual(const float* values, float scale, const float* residual, int64_t n, float* sum) {
  if (scale == 1.0f && residual != nullptr) return vectors::Add(sum, values, residual, n);
  vectors::AccumulateScaled(sum, values, scale, n, kernels::Accumulate::kSet);
  if (residual != nullptr)
    vectors::AccumulateScaled(sum, residual, 1.0f, n, kernels::Accumulate::kAdd);
}

}  // namespace

void AccumulateDecoded(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                       float* acc, kernels::Accumulate accumulate) {
  if (encoding == params::Encoding::kFp32) {
    vectors::AccumulateScaled(acc, reinterpret_cast<const float*>(encoded), scale, n, accumulate);
    return;
  }
  if (encoding.is_topk()) {
    if (accumulate == kernels::Accumulate::kSet) std::fill_n(acc, n, 0.0f);
    AddTopK(encoding, encoded, n, scale, acc);
    return;
  }
  const Codec& codec = CodecOf(encoding);
  float decoded[kPiece];
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    codec.Decode(encoded + bytes, size, decoded);
    vectors::AccumulateScaled(acc + begin, decoded, scale, size, accumulate);
  });
}

void AddWhereKept(params::Encoding encoding, const std::byte* encoded, int64_t n, float weight,
                  float* acc) {
  if (encoding.is_topk()) return AddAtTopK(encoding, encoded, n, weight, acc);
  for (int64_t i = 0; i < n; ++i) acc[i] += weight;
}

void DecodePart(params::Encoding encoding, const std::byte* encoded, int64_t n, int64_t begin,
                int64_t size, float* values) {
  const Codec& codec = CodecOf(encoding);
  const int64_t end = begin + size;
  const int64_t block = params::BlockElements(encoding);
  if (begin % block == 0 && (end % block == 0 || end == n)) {
    return codec.Decode(encoded + params::EncodedBytes(encoding, begin), size, values);
  }
  float decoded[kPiece];
  for (int64_t piece = begin / kPiece * kPiece; piece < end; piece += kPiece) {
    codec.Decode(encoded + params::EncodedBytes(encoding, piece), std::min(kPiece, n - piece),
                 decoded);
    const int64_t first = std::max(begin, piece);
    const int64_t last = std::min({end, piece + kPiece, n});
    std::copy(decoded + (first - piece), decoded + (last - piece), values + (first - begin));
  }
}

int64_t FirstMalformed(params::Encoding encoding, const std::byte* encoded, int64_t n) {
  return encoding.is_topk() ? FirstMalformedTopK(encoding, encoded, n) : n;
}

int64_t FirstNotBelow(params::Encoding encoding, const std::byte* encoded, float limit, int64_t n) {
  const Codec& codec = CodecOf(encoding);
  float decoded[kPiece];
  int64_t first = n;
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    if (first < n || codec.IsSurelyBelow(encoded + bytes, limit, size)) return;
    codec.Decode(encoded + bytes, size, decoded);
    const float* const found = std::find_if(
        decoded, decoded + size, [limit](float value) { return !(std::abs(value) < limit); });
    if (found == decoded + size) return;
    first = begin + (found - decoded);
  });
  return first;
}

int64_t FirstNotBelow(params::Encoding encoding, const std::byte* encoded, float limit, int64_t n,
                      double* square_sum) {
  const Codec& codec = CodecOf(encoding);
  float space[kPiece];
  int64_t first = n;
  *square_sum = 0.0;
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    if (first < n) return;
    // With fp32, `decoded` points to the encoded bytes themselves, which may not be aligned.
    const float* decoded = reinterpret_cast<const float*>(encoded + bytes);
    if (encoding != params::Encoding::kFp32) {
      codec.Decode(encoded + bytes, size, space);
      decoded = space;
    }
    double of_piece = 0.0;
    if (vectors::AllBelow(decoded, limit, size, &of_piece) && std::isfinite(of_piece)) {
      *square_sum += of_piece;
      return;
    }
    codec.Decode(encoded + bytes, size, space);
    const float* const found = std::find_if(
        space, space + size, [limit](float value) { return !(std::abs(value) < limit); });
    if (found != space + size) {
      first = begin + (found - space);
    } else {
      // The squares may be too large for fp32, because elements above 1e18 are allowed if `limit`
      // is large.
      *square_sum += vectors::SumOfSquares(space, size);
    }
  });
  return first;
}

double SquareDistance(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                      const float* base) {
  float difference[kPiece];
  double square_sum = 0.0;
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    AccumulateDecoded(encoding, encoded + bytes, size, scale, difference,
                      kernels::Accumulate::kSet);
    vectors::AccumulateScaled(difference, base + begin, -1.0f, size, kernels::Accumulate::kAdd);
    square_sum += vectors::SumOfSquares(difference, size);
  });
  return square_sum;
}

void EncodeWithResidual(params::Encoding encoding, const float* values, float scale,
                        const float* residual, int64_t n, const kernels::Rounding& rounding,
                        std::byte* encoded) {
  const Codec& codec = CodecOf(encoding);
  float sum[kPiece];
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    AddResidual(values + begin, scale, residual == nullptr ? nullptr : residual + begin, size, sum);
    codec.Encode(sum, size, RoundingFrom(rounding, begin), encoded + bytes);
  });
}

void UpdateResidual(params::Encoding encoding, const float* values, float scale,
                    const std::byte* encoded, int64_t n, float decay, float* residual) {
  const Codec& codec = CodecOf(encoding);
  float sum[kPiece];
  float decoded[kPiece];
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    AddResidual(values + begin, scale, residual + begin, size, sum);
    codec.Decode(encoded + bytes, size, decoded);
    vectors::Subtract(residual + begin, sum, decoded, size);
    if (decay == 1.0f) return;
    vectors::AccumulateScaled(residual + begin, residual + begin, decay, size,
                              kernels::Accumulate::kSet);
  });
}

void EncodeAndUpdate(params::Encoding encoding, const float* values, float scale,
                     const float* residual, int64_t n, const kernels::Rounding& rounding,
                     float decay, std::byte* encoded, float* next_residual) {
  const Codec& codec = CodecOf(encoding);
  float sum[kPiece];
  float decoded[kPiece];
  // With shorter pieces, the processor reads and writes memory while it computes. Top-k needs
  // pieces of kPiece elements, because its blocks have that size.
  const int64_t piece_elements = encoding.is_topk() ? kPiece : kPiece / 4;
  ForEachPieceOf(piece_elements, encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    AddResidual(values + begin, scale, residual + begin, size, sum);
    codec.Encode(sum, size, RoundingFrom(rounding, begin), encoded + bytes);
    codec.Decode(encoded + bytes, size, decoded);
    vectors::DifferencePastCaches(next_residual + begin, sum, decoded, decay, size);
  });
  vectors::EndPastCaches();
}

void EncodeChange(params::Encoding encoding, const float* target, const float* base, int64_t n,
                  const kernels::Rounding& rounding, std::byte* encoded) {
  const Codec& codec = CodecOf(encoding);
  float change[kPiece];
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    vectors::Subtract(change, target + begin, base + begin, size);
    codec.Encode(change, size, RoundingFrom(rounding, begin), encoded + bytes);
  });
}

void EncodeChangeAndAdvance(params::Encoding encoding, const float* target, float* base, int64_t n,
                            const kernels::Rounding& rounding, std::byte* encoded) {
  ForEachPiece(encoding, n, [&](int64_t begin, int64_t size, int64_t bytes) {
    EncodeChange(encoding, target + begin, base + begin, size, RoundingFrom(rounding, begin),
                 encoded + bytes);
    AccumulateDecoded(encoding, encoded + bytes, size, 1.0f, base + begin,
                      kernels::Accumulate::kAdd);
  });
}

}  // namespace lodestar::codec
