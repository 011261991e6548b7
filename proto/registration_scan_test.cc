// SPDX-License-Identifier: Apache-2.0

#include "proto/registration_scan.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <string>

#include "common/testing/status_matchers.h"
#include "proto/cluster_service.pb.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<int64_t> Count(const std::string& bytes, int64_t most = 100, int block = -1) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()),
                                                block);
  return CountTensors(&stream, most);
}

std::string Registration(int num_tensors) {
  v1::RegisterRequest request;
  request.set_wire_version(3);
  request.set_name("worker");
  for (int i = 0; i < num_tensors; ++i) {
    v1::TensorSpec* tensor = request.mutable_layout()->add_tensors();
    tensor->set_name("tensor");
    tensor->add_shape(i + 1);
  }
  request.add_encodings(v1::ENCODING_BF16);
  return request.SerializeAsString();
}

TEST(RegistrationScanTest, CountsTensorsWhateverElseThereIs) {
  for (const int block : {-1, 1, 7}) {
    EXPECT_THAT(Count(Registration(0), 100, block), IsOkAndHolds(0));
    EXPECT_THAT(Count(Registration(77), 100, block), IsOkAndHolds(77));
  }
  // protobuf parses the bytes of two messages, one after the other, as one message with the tensors
  // of both.
  EXPECT_THAT(Count(Registration(3) + Registration(4)), IsOkAndHolds(7));
  EXPECT_THAT(Count(""), IsOkAndHolds(0));
}

TEST(RegistrationScanTest, GoesNoFurtherThanTheLimit) {
  EXPECT_THAT(Count(Registration(5), 4), IsOkAndHolds(5));
  // The layout has many tensors of two bytes, and its end is missing.
  std::string layout = "\x32\xff\xff\x7f";
  for (int i = 0; i < 1 << 10; ++i) layout += std::string("\x0a\x00", 2);
  EXPECT_THAT(Count(layout, 1000), IsOkAndHolds(1001));
}

TEST(RegistrationScanTest, WhatIsNoMessageIsAnError) {
  for (const std::string& bytes :
       {std::string("\x32\x05", 2), std::string("\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11),
        std::string("\x07", 1), std::string("\x32\x01\x0a", 3), Registration(3).substr(0, 20)}) {
    EXPECT_THAT(Count(bytes), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("RegisterRequest")));
  }
}

}  // namespace
}  // namespace lodestar::wire
