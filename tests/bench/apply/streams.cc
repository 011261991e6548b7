// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/apply/streams.h"

#include <xmmintrin.h>

#include "common/runtime/check.h"

// Compiles a loop once per width of vectors. The processor's version is chosen at load time.
#define LODESTAR_EVERY_WIDTH \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

namespace lodestar {
namespace {

LODESTAR_EVERY_WIDTH void UpdateOne(const float* __restrict g, float* __restrict a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = 0.5f * a[i] + g[i];
}

LODESTAR_EVERY_WIDTH void UpdateTwo(const float* __restrict g, float* __restrict a,
                                    float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    a[i] = 0.5f * a[i] + g[i];
    b[i] = 0.5f * b[i] + g[i];
  }
}

LODESTAR_EVERY_WIDTH void UpdateThree(const float* __restrict g, float* __restrict a,
                                      float* __restrict b, float* __restrict c, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    a[i] = 0.5f * a[i] + g[i];
    b[i] = 0.5f * b[i] + g[i];
    c[i] = 0.5f * c[i] + g[i];
  }
}

LODESTAR_EVERY_WIDTH void Copy(const float* __restrict g, float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = 0.5f * g[i];
}

LODESTAR_EVERY_WIDTH void Move(const float* __restrict g, const float* __restrict from,
                               float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = 0.5f * from[i] + g[i];
}

LODESTAR_EVERY_WIDTH void MoveUpdateOne(const float* __restrict g, const float* __restrict from,
                                        float* __restrict to, float* __restrict a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = 0.5f * from[i] + g[i];
    a[i] = 0.5f * a[i] + g[i];
  }
}

LODESTAR_EVERY_WIDTH void MoveUpdateTwo(const float* __restrict g, const float* __restrict from,
                                        float* __restrict to, float* __restrict a,
                                        float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = 0.5f * from[i] + g[i];
    a[i] = 0.5f * a[i] + g[i];
    b[i] = 0.5f * b[i] + g[i];
  }
}

void RunPlain(const StreamPart& p, int num_updated) {
  const bool reads_old = p.moved_from != nullptr;
  if (p.moved_to == nullptr) {
    if (num_updated == 1) return UpdateOne(p.read, p.updated[0], p.elements);
    if (num_updated == 2) return UpdateTwo(p.read, p.updated[0], p.updated[1], p.elements);
    return UpdateThree(p.read, p.updated[0], p.updated[1], p.updated[2], p.elements);
  }
  if (!reads_old) return Copy(p.read, p.moved_to, p.elements);
  if (num_updated == 0) return Move(p.read, p.moved_from, p.moved_to, p.elements);
  if (num_updated == 1) {
    return MoveUpdateOne(p.read, p.moved_from, p.moved_to, p.updated[0], p.elements);
  }
  MoveUpdateTwo(p.read, p.moved_from, p.moved_to, p.updated[0], p.updated[1], p.elements);
}

constexpr int kLineLanes = 16;

// Writes a whole cache line at a time, so that no line is written in halves.
void RunNonTemporal(const StreamPart& p, int num_updated) {
  const __m128 half = _mm_set1_ps(0.5f);
  for (int64_t i = 0; i + kLineLanes <= p.elements; i += kLineLanes) {
    for (int64_t lane = i; lane < i + kLineLanes; lane += 4) {
      const __m128 g = _mm_loadu_ps(p.read + lane);
      for (int k = 0; k < num_updated; ++k) {
        float* y = p.updated[k] + lane;
        _mm_storeu_ps(y, _mm_add_ps(_mm_mul_ps(half, _mm_loadu_ps(y)), g));
      }
      const __m128 old = p.moved_from == nullptr ? g : _mm_loadu_ps(p.moved_from + lane);
      _mm_stream_ps(p.moved_to + lane, _mm_add_ps(_mm_mul_ps(half, old), g));
    }
  }
  _mm_sfence();
}

}  // namespace

void RunStreams(const StreamPart& part, int num_updated, Stores stores) {
  LODESTAR_CHECK(num_updated <= kMaxUpdated && (num_updated > 0 || part.moved_to != nullptr));
  if (stores == Stores::kNonTemporal) {
    LODESTAR_CHECK(part.moved_to != nullptr && part.elements % kLineLanes == 0);
    RunNonTemporal(part, num_updated);
  } else {
    RunPlain(part, num_updated);
  }
}

}  // namespace lodestar
