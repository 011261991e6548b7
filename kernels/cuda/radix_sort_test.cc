// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/radix_sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_test_rig.h"

namespace lodestar::cuda {
namespace {

// Returns the sorted keys, then their old positions.
std::vector<int32_t> Sorted(const std::vector<int32_t>& keys, int32_t end) {
  return InBothOrders([&](KernelTestRig& rig) {
    SortedKeys sorted;
    void* workspace = rig.Allocate<char>(SortKeysWorkspaceBytes(keys.size()));
    EXPECT_EQ(SortKeys(&sorted, rig.Upload(keys), keys.size(), end, workspace, rig.stream()),
              cudaSuccess);
    std::vector<int32_t> result = rig.Download(sorted.keys, keys.size());
    const std::vector<int32_t> positions = rig.Download(sorted.positions, keys.size());
    result.insert(result.end(), positions.begin(), positions.end());
    return result;
  });
}

std::vector<int32_t> Expected(std::vector<int32_t> keys, int32_t end) {
  for (int32_t& key : keys) key = key < 0 || key > end ? end : key;
  std::vector<int32_t> positions(keys.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::stable_sort(positions.begin(), positions.end(),
                   [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
  std::vector<int32_t> result;
  for (int32_t position : positions) result.push_back(keys[position]);
  result.insert(result.end(), positions.begin(), positions.end());
  return result;
}

// 20000 keys have 20 tiles, and so 16 * 20 = 320 counts. These are more than the threads of a
// block, so RadixPlacesKernel() runs its loop several times.
TEST(RadixSortTest, SortsStablyWhateverTheNumberOfDigitsAndTiles) {
  for (int64_t n : {0, 1, 7, 1023, 1025, 20000}) {
    for (int32_t end : {1, 2, 15, 16, 255, 50257}) {
      std::vector<int32_t> keys(n);
      for (int64_t i = 0; i < n; ++i) {
        keys[i] = static_cast<int32_t>((Noise(i) + 1.0f) / 2.0f * static_cast<float>(end));
      }
      EXPECT_EQ(Sorted(keys, end), Expected(keys, end)) << "n=" << n << " end=" << end;
    }
  }
}

TEST(RadixSortTest, KeysOutsideTheRangeComeLast) {
  const std::vector<int32_t> keys = {3, -1, 2, 1 << 30, 0, 16, 15, -(1 << 30)};
  EXPECT_EQ(Sorted(keys, 16), Expected(keys, 16));
}

}  // namespace
}  // namespace lodestar::cuda
