// SPDX-License-Identifier: Apache-2.0

#include "common/storage/shared_region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "common/testing/status_matchers.h"

namespace lodestar::storage {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPayload = 100'000;

TEST(SharedRegionTest, BothSidesSeeTheSameBytes) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion mine, SharedRegion::Create(kPayload));
  ASSERT_OK_AND_ASSIGN(const SharedRegion yours, SharedRegion::Open(mine.handle()));
  EXPECT_EQ(yours.size(), kPayload + SharedRegion::kHeaderBytes);
  std::memcpy(mine.Part(5, 3)->data(), "abc", 3);
  EXPECT_EQ(std::memcmp(yours.Part(5, 3)->data(), "abc", 3), 0);
  std::memcpy(yours.Part(kPayload - 2, 2)->data(), "yz", 2);
  EXPECT_EQ(std::memcmp(mine.Part(kPayload - 2, 2)->data(), "yz", 2), 0);
}

TEST(SharedRegionTest, AnotherProcessOpensIt) {
  ASSERT_OK_AND_ASSIGN(SharedRegion mine, SharedRegion::Create(kPayload));
  ASSERT_OK(mine.Touch());
  const pid_t child = fork();
  if (child == 0) {
    // The child uses only the handle, not the memory or descriptors that it has inherited.
    const absl::StatusOr<SharedRegion> opened = SharedRegion::Open(mine.handle());
    if (opened.ok()) opened->Part(0, 1)->front() = 'x';
    _exit(opened.ok() ? 0 : 1);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(mine.Part(0, 1)->front(), 'x');
}

TEST(SharedRegionTest, PartsOutsideAreRefusedWithoutOverflow) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(kPayload));
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  EXPECT_OK(region.Part(0, kPayload));
  EXPECT_OK(region.Part(kPayload - 1, 1));
  const std::pair<uint64_t, uint64_t> bad[] = {{0, 0},        {0, kPayload + 1}, {1, kPayload},
                                               {kPayload, 1}, {kHuge, 1},        {kHuge, kHuge},
                                               {1, kHuge},    {0, kHuge},        {kHuge - 3, 4}};
  for (const auto& [offset, bytes] : bad) {
    EXPECT_THAT(region.Part(offset, bytes), StatusIs(absl::StatusCode::kInvalidArgument))
        << offset << " " << bytes;
  }
}

TEST(SharedRegionTest, ForgedHandlesAreRefused) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(kPayload));
  const auto refused = [&](auto change) {
    SharedRegion::Handle handle = region.handle();
    change(handle);
    return SharedRegion::Open(handle).status();
  };
  using Handle = SharedRegion::Handle;
  EXPECT_THAT(refused([](Handle& h) { h.nonce[7] ^= 1; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("nonce differs")));
  EXPECT_THAT(refused([](Handle& h) { h.nonce.pop_back(); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("15 bytes")));
  EXPECT_THAT(refused([](Handle& h) { h.bytes += 1; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("bytes instead of")));
  EXPECT_THAT(refused([](Handle& h) { h.bytes = SharedRegion::kHeaderBytes; }),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(refused([](Handle& h) { h.bytes = std::numeric_limits<uint64_t>::max(); }),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(refused([](Handle& h) { h.descriptor = 1'000'000; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another machine")));
  EXPECT_THAT(refused([](Handle& h) { h.descriptor = -1; }),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(refused([](Handle& h) { h.process_id = 0; }),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(refused([](Handle& h) { h.process_id = std::numeric_limits<int>::max(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// A peer that can shrink the file could kill this process. A peer can also send a handle of another
// file of this process. If the file were not checked, this process would overwrite it.
TEST(SharedRegionTest, WhatIsNotASealedRegionIsRefused) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(kPayload));
  SharedRegion::Handle handle = region.handle();
  const auto open_as = [&handle](int descriptor) {
    handle.descriptor = descriptor;
    return SharedRegion::Open(handle).status();
  };
  const int unsealed = memfd_create("unsealed", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, handle.bytes), 0);
  ASSERT_EQ(pwrite(unsealed, handle.nonce.data(), handle.nonce.size(), 0), handle.nonce.size());
  EXPECT_THAT(open_as(unsealed),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not sealed")));
  close(unsealed);

  const std::string path = ::testing::TempDir() + "/shared_region_test_file";
  std::ofstream(path) << handle.nonce << std::string(handle.bytes - handle.nonce.size(), 'x');
  const int file = open(path.c_str(), O_RDWR);
  EXPECT_THAT(open_as(file), StatusIs(absl::StatusCode::kFailedPrecondition));
  close(file);

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THAT(open_as(ends[0]), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("is not a file in memory")));
  close(ends[0]);
  close(ends[1]);
}

TEST(SharedRegionTest, SizeCannotBeChanged) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(kPayload));
  EXPECT_NE(ftruncate(static_cast<int>(region.handle().descriptor), 0), 0);
}

TEST(SharedRegionTest, NothingIsLeftWhenTheMakerIsGone) {
  SharedRegion::Handle handle;
  {
    ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(kPayload));
    handle = region.handle();
  }
  EXPECT_THAT(SharedRegion::Open(handle), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(SharedRegionTest, SizesAreBounded) {
  EXPECT_THAT(SharedRegion::Create(0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SharedRegion::Create(SharedRegion::kMaxBytes),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lodestar::storage
