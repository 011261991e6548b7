// SPDX-License-Identifier: Apache-2.0

// Implements the matrix product after Goto and van de Geijn (2008), "Anatomy of high-performance
// matrix multiplication". B is packed into panels of at most kDepth rows and kPanelVectors SIMD
// vectors. A panel stays in the first-level cache while it is multiplied with a block of rows of A.
// A is read directly, or packed if it is transposed.
#include "kernels/simd/tables.h"
#include "kernels/simd/vector.h"

namespace lodestar::simd::LODESTAR_ISA {
namespace {

// A tile of C uses nearly all registers: kTileRows x kPanelVectors for its sums, kPanelVectors for
// the row of B, and one for an element of A. These are 6 x 4 + 4 + 1 of 32 registers with AVX-512,
// and 6 x 2 + 2 + 1 of 16 without.
constexpr int kPanelVectors = kLanes == 16 ? 4 : 2;
constexpr int kPanelColumns = kPanelVectors * kLanes;
constexpr int kTileRows = 6;
// Number of rows of a tile in a narrow panel at the right edge, which has at most half of
// kPanelVectors vectors. With more rows than kTileRows, the latency of the additions is hidden.
constexpr int kNarrowTileRows = 12;
// Number of rows of A that are packed together. It is a multiple of kTileRows and kNarrowTileRows.
constexpr int64_t kGroupRows = 12;
constexpr int TileRows(int vectors) {
  return 2 * vectors > kPanelVectors ? kTileRows : kNarrowTileRows;
}

// Depth of a panel of B. A panel of kDepth x kPanelColumns is 48 KiB with AVX-512.
constexpr int64_t kDepth = 192;
// Number of rows of A that are multiplied with one panel before the next panel is used. A block of
// kBlockRows x kDepth elements of A stays in the second-level cache.
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockColumns = 512;
static_assert(kGemmPackElements >= kDepth * (kBlockColumns + kBlockRows));

// A tile of C has `rows` rows and vectors * kLanes columns, except that the last vector has only
// `last_lanes` columns.
struct Tile {
  const float* a;
  int64_t a_row_stride, a_depth_stride;
  int64_t a_group_stride;  // stride of a group of kGroupRows rows
  const float* b;
  int64_t b_stride;  // stride of one step in depth
  float* c;
  int64_t c_stride;
  int64_t depth;
  int64_t last_lanes;
  float alpha;
  bool add;
};

template <int kRows, int kVectors>
void MultiplyTile(const Tile& t) {
  Vec sums[kRows][kVectors] = {};
  const float* a = t.a;
  const float* b = t.b;
  const int64_t row_stride = t.a_row_stride;
  const int64_t depth_stride = t.a_depth_stride;
  const int64_t b_stride = t.b_stride;
  for (int64_t k = 0; k < t.depth; ++k) {
    Vec b_row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) b_row[j] = Load(b + j * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const Vec a_element = Broadcast(a[i * row_stride]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = Fma(a_element, b_row[j], sums[i][j]);
    }
    a += depth_stride;
    b += b_stride;
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* to = t.c + i * t.c_stride + j * kLanes;
      const Vec value = sums[i][j] * t.alpha;
      if (j < kVectors - 1 || t.last_lanes == kLanes) {
        Store(to, t.add ? Load(to) + value : value);
      } else {
        StorePart(to, t.add ? LoadPart(to, t.last_lanes) + value : value, t.last_lanes);
      }
    }
  }
}

// Calls MultiplyTile() for `rows` rows, which must be at most kRows.
template <int kVectors, int kRows = TileRows(kVectors)>
void MultiplyRows(int64_t rows, const Tile& t) {
  if (rows == kRows) return MultiplyTile<kRows, kVectors>(t);
  if constexpr (kRows > 1) MultiplyRows<kVectors, kRows - 1>(rows, t);
}

template <int kVectors>
void MultiplyPanel(int64_t rows, Tile t) {
  constexpr int64_t kStep = TileRows(kVectors);
  static_assert(kGroupRows % kStep == 0);
  const float* a = t.a;
  for (int64_t i = 0; i < rows; i += kStep) {
    t.a = a + i / kGroupRows * t.a_group_stride + i % kGroupRows * t.a_row_stride;
    MultiplyRows<kVectors>(rows - i < kStep ? rows - i : kStep, t);
    t.c += kStep * t.c_stride;
  }
}

void MultiplyPanelOf(int vectors, int64_t rows, const Tile& t) {
  if constexpr (kPanelVectors == 4) {
    if (vectors == 4) return MultiplyPanel<4>(rows, t);
    if (vectors == 3) return MultiplyPanel<3>(rows, t);
  }
  if (vectors == 2) return MultiplyPanel<2>(rows, t);
  MultiplyPanel<1>(rows, t);
}

// Sets packed[k][column] = b[k * stride + column], padded with zeros to `vectors` vectors.
void PackRows(float* packed, const float* b, int64_t stride, int64_t depth, int64_t columns,
              int vectors) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int j = 0; j < vectors; ++j) {
      const int64_t left = columns - j * kLanes;
      const float* from = b + k * stride + j * kLanes;
      Store(packed, left >= kLanes ? Load(from) : LoadPart(from, left));
      packed += kLanes;
    }
  }
}

// Swaps the off-diagonal quarters of every 2 kStep x 2 kStep square of a kLanes x kLanes matrix.
template <int kStep>
inline void TransposeStep(Vec* m) {
  IntVec low, high;
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool upper = (lane & kStep) != 0;
    low[lane] = upper ? lane - kStep + kLanes : lane;
    high[lane] = upper ? lane + kLanes : lane + kStep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const Vec a = m[i];
    const Vec b = m[i + kStep];
    m[i] = __builtin_shuffle(a, b, low);
    m[i + kStep] = __builtin_shuffle(a, b, high);
  }
}

inline void Transpose(Vec* m) {
  if constexpr (kLanes == 16) TransposeStep<8>(m);
  if constexpr (kLanes >= 8) TransposeStep<4>(m);
  TransposeStep<2>(m);
  TransposeStep<1>(m);
}

// Sets packed[k][column] = b[column * stride + k], padded with zeros to `vectors` vectors.
void PackColumns(float* packed, const float* b, int64_t stride, int64_t depth, int64_t columns,
                 int vectors) {
  const int64_t packed_stride = int64_t{vectors} * kLanes;
  for (int j = 0; j < vectors; ++j) {
    for (int64_t k = 0; k < depth; k += kLanes) {
      const int64_t rest = depth - k < kLanes ? depth - k : kLanes;
      Vec square[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const int64_t column = j * kLanes + i;
        const float* from = b + column * stride + k;
        square[i] = column >= columns ? Vec{} : rest == kLanes ? Load(from) : LoadPart(from, rest);
      }
      Transpose(square);
      for (int64_t i = 0; i < rest; ++i)
        Store(packed + (k + i) * packed_stride + j * kLanes, square[i]);
    }
  }
}

inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

// Divides n into the smallest number of blocks of at most `target`, and returns their size. The
// last block may be smaller.
inline int64_t EvenBlock(int64_t n, int64_t target) {
  const int64_t blocks = (n + target - 1) / target;
  return (n + blocks - 1) / blocks;
}

void PackB(const GemmShape& s, const float* b, int64_t depth, int64_t columns, float* packed) {
  for (int64_t j = 0; j < columns; j += kPanelColumns) {
    const int64_t width = Min(kPanelColumns, columns - j);
    const int vectors = static_cast<int>((width + kLanes - 1) / kLanes);
    if (s.transpose_b) {
      PackColumns(packed + j * depth, b + j * s.ldb, s.ldb, depth, width, vectors);
    } else {
      PackRows(packed + j * depth, b + j, s.ldb, depth, width, vectors);
    }
  }
}

// Sets packed[group][k][row in group] = a[k * stride + row].
void PackTransposedA(float* packed, const float* a, int64_t stride, int64_t depth, int64_t rows) {
  for (int64_t group = 0; group < rows; group += kGroupRows) {
    const int64_t count = Min(kGroupRows, rows - group);
    for (int64_t k = 0; k < depth; ++k) {
      const float* from = a + k * stride + group;
      if (count == kGroupRows) {
        __builtin_memcpy(packed, from, kGroupRows * sizeof(float));
      } else {
        for (int64_t i = 0; i < count; ++i) packed[i] = from[i];
      }
      packed += kGroupRows;
    }
  }
}

// A product over a part of k, which has at most kDepth steps: C[m, n] = alpha * A B. If `add`, the
// product is added to C.
struct Slice {
  const GemmShape& shape;
  int64_t depth;
  const float* a;
  const float* b;
  float* c;
  float alpha;
  bool add;
  float* packed_b;
  float* packed_a;
};

Tile TileOfRows(const Slice& s, int64_t first_row, int64_t rows) {
  const GemmShape& shape = s.shape;
  Tile t = {};
  t.depth = s.depth;
  t.alpha = s.alpha;
  t.add = s.add;
  t.c_stride = shape.ldc;
  t.a_row_stride = shape.transpose_a ? 1 : shape.lda;
  t.a_depth_stride = shape.transpose_a ? shape.lda : 1;
  t.a_group_stride = kGroupRows * t.a_row_stride;
  t.a = s.a + first_row * t.a_row_stride;
  // If B has only one panel, A is read only once, so copying it would not help.
  if (shape.transpose_a && shape.n > kPanelColumns) {
    PackTransposedA(s.packed_a, t.a, shape.lda, s.depth, rows);
    t.a = s.packed_a;
    t.a_depth_stride = kGroupRows;
    t.a_group_stride = kGroupRows * s.depth;
  }
  return t;
}

void MultiplyColumns(const Slice& s, int64_t first, int64_t columns) {
  const GemmShape& shape = s.shape;
  const bool pack = shape.transpose_b || shape.m > kBlockRows || columns % kLanes != 0;
  const float* b = s.b + first * (shape.transpose_b ? shape.ldb : 1);
  if (pack) PackB(shape, b, s.depth, columns, s.packed_b);
  for (int64_t m = 0; m < shape.m; m += kBlockRows) {
    const int64_t rows = Min(kBlockRows, shape.m - m);
    Tile t = TileOfRows(s, m, rows);
    for (int64_t j = 0; j < columns; j += kPanelColumns) {
      const int64_t width = Min(kPanelColumns, columns - j);
      const int vectors = static_cast<int>((width + kLanes - 1) / kLanes);
      t.b = pack ? s.packed_b + j * s.depth : b + j;
      t.b_stride = pack ? int64_t{vectors} * kLanes : shape.ldb;
      t.c = s.c + m * shape.ldc + first + j;
      t.last_lanes = width - int64_t{vectors - 1} * kLanes;
      MultiplyPanelOf(vectors, rows, t);
    }
  }
}

void Gemm(const GemmShape& s, float alpha, const float* a, const float* b, float* c, bool add,
          float* pack) {
  if (s.k == 0) {
    for (int64_t i = 0; i < s.m && !add; ++i) {
      for (int64_t j = 0; j < s.n; ++j) c[i * s.ldc + j] = 0.0f;
    }
    return;
  }
  const int64_t depth_block = EvenBlock(s.k, kDepth);
  for (int64_t n = 0; n < s.n; n += kBlockColumns) {
    for (int64_t k = 0; k < s.k; k += depth_block) {
      const Slice slice = {.shape = s,
                           .depth = Min(depth_block, s.k - k),
                           .a = a + k * (s.transpose_a ? s.lda : 1),
                           .b = b + k * (s.transpose_b ? 1 : s.ldb),
                           .c = c,
                           .alpha = alpha,
                           .add = add || k > 0,
                           .packed_b = pack,
                           .packed_a = pack + kDepth * kBlockColumns};
      MultiplyColumns(slice, n, Min(kBlockColumns, s.n - n));
    }
  }
}

}  // namespace

void AddGemm(Loops* loops) { loops->gemm = Gemm; }

}  // namespace lodestar::simd::LODESTAR_ISA
