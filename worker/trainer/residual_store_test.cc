// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/residual_store.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/testing/scripted_transport.h"

namespace lodestar::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

messages::Registration SomeRegistration() {
  messages::Registration registration = TwoBlocks();
  registration.server_incarnation = 1ull << 63;
  registration.life = {WorkerId(3), Incarnation(1ull << 62)};
  registration.life_secret = "secret";
  registration.job.push_encoding = params::Encoding::kBf16;
  return registration;
}

ResidualRecord SomeRecord() {
  const messages::Registration registration = SomeRegistration();
  ResidualRecord record;
  record.worker_name = "w";
  record.layout_hash = registration.layout().hash();
  record.encoding = params::Encoding::kBf16;
  record.server_incarnation = registration.server_incarnation;
  record.life = registration.life;
  record.life_secret = registration.life_secret;
  record.header = {.round = Round(12),
                   .kind = messages::ContributionKind::kPseudoGradient,
                   .scale = 0.3f,
                   .encoding = params::Encoding::kBf16,
                   .num_samples = 17,
                   .learning_rates = {{0, 0.1 / 7}},
                   .weight = 0};
  record.buckets = registration.buckets();
  record.base_versions = {Version(11), Version(10)};
  record.bucket_bytes = {4, 4};
  record.report.round = Round(12);
  record.report.loss_sum = 1.0 / 3.0;
  record.report.num_samples = 17;
  record.report.heldout_correct = 3;
  record.report.base_version = Version(11);
  return record;
}

TEST(ResidualRecordTest, ReadsBackToTheBit) {
  const ResidualRecord record = SomeRecord();
  const absl::StatusOr<ResidualRecord> read = ParseRecord(FormatRecord(record));
  ASSERT_OK(read);
  EXPECT_EQ(read->worker_name, "w");
  EXPECT_EQ(read->layout_hash, record.layout_hash);
  EXPECT_EQ(read->server_incarnation, record.server_incarnation);
  EXPECT_EQ(read->life, record.life);
  EXPECT_EQ(read->life_secret, "secret");
  EXPECT_EQ(read->header, record.header);
  EXPECT_EQ(read->base_versions, record.base_versions);
  EXPECT_EQ(read->bucket_bytes, record.bucket_bytes);
  EXPECT_EQ(read->num_elements(), 4);
  EXPECT_EQ(read->report.round, Round(12));
  EXPECT_EQ(read->report.loss_sum, 1.0 / 3.0);
  EXPECT_EQ(read->report.heldout_correct, 3);
  EXPECT_EQ(read->report.base_version, Version(11));
  EXPECT_OK(CheckBelongs(*read, "w", SomeRegistration()));
}

TEST(ResidualRecordTest, ALossThatIsNotANumberStaysOne) {
  ResidualRecord record = SomeRecord();
  record.report.loss_sum = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(ParseRecord(FormatRecord(record))->report.loss_sum));
}

TEST(ResidualRecordTest, WhatCannotBeIsRefusedByName) {
  const std::string text = FormatRecord(SomeRecord());
  const auto error = [&](const std::string& from, const std::string& to) {
    const std::string changed = absl::StrReplaceAll(text, {{from, to}});
    EXPECT_NE(changed, text) << from;
    return ParseRecord(changed).status();
  };
  const auto is = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(error("\"version\":1", "\"version\":2"), is("version 2, but this program reads 1"));
  EXPECT_THAT(error("bf16", "fp8"), is("fp8"));
  EXPECT_THAT(error("pseudo_gradient", "weights"), is("kind is weights"));
  EXPECT_THAT(error("\"life_secret\"", "\"nothing\""), is("life_secret"));
  EXPECT_THAT(error("\"bytes\":4", "\"bytes\":9"), is("has 9 bytes"));
  EXPECT_THAT(error("\"begin\":2", "\"begin\":3"), is("must begin at element 2"));
  EXPECT_THAT(error("}", ""), is(""));
}

TEST(ResidualRecordTest, WhatIsOfAnotherJobSaysWhatDiffers) {
  const auto reason = [](const std::string& name, const messages::Registration& registration) {
    return CheckBelongs(SomeRecord(), name, registration);
  };
  const auto is = [](const char* what) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(what));
  };
  messages::Registration registration = SomeRegistration();
  EXPECT_THAT(reason("v", registration), is("of worker 'w', but this worker is 'v'"));
  registration.job.push_encoding = params::Encoding::kInt8;
  EXPECT_THAT(reason("w", registration), is("--push_encoding=bf16, but the job has int8"));
  registration = SomeRegistration();
  registration.server_incarnation += 1;
  EXPECT_THAT(reason("w", registration),
              is("their incarnation was 9223372036854775808 and is now 9223372036854775809"));
  registration = SomeRegistration();
  registration.next_round = Round(12);
  EXPECT_THAT(reason("w", registration), is("the residual is of round 12"));
  registration.next_round = Round(13);
  EXPECT_OK(reason("w", registration));
  registration.life.incarnation = Incarnation(SomeRecord().life.incarnation.value() - 1);
  EXPECT_THAT(reason("w", registration), is("the servers have gone back"));
  auto map = std::make_shared<messages::ClusterMap>(*registration.map);
  map->buckets.pop_back();
  registration = SomeRegistration();
  registration.map = map;
  EXPECT_THAT(reason("w", registration), is("its 2 buckets differ from the 1"));
  map->layout = *params::Layout::FromTensors({{"x", {4}, 0, 0, false, {}}});
  EXPECT_THAT(reason("w", registration), is("of another job, with layout"));
}

class ResidualStoreTest : public testing::Test {
 protected:
  ResidualStoreTest() { EXPECT_OK(disk_.CreateDirectories("kept")); }

  absl::Status Save(int64_t round = 12) {
    ResidualRecord record = SomeRecord();
    record.header.round = Round(round);
    const std::vector<std::byte> bytes(8, std::byte{7});
    return store_.Save(record, before_, after_,
                       {absl::MakeSpan(bytes).subspan(0, 4), absl::MakeSpan(bytes).subspan(4, 4)});
  }
  std::string Contents() { return *disk_.ReadWholeFile(store_.path(), 1 << 20); }
  // Returns the error of Load() for a file with these bytes.
  absl::Status ErrorOf(const std::string& contents) {
    auto file = *disk_.Create(store_.path(), storage::FileSystem::IfExists::kTruncate);
    EXPECT_OK(file->Append(contents));
    return store_.Load().status();
  }

  const std::vector<float> before_ = {1, 2, 3, 4};
  const std::vector<float> after_ = {5, 6, 7, 8};
  SimulatedFileSystem disk_;
  ResidualStore store_{&disk_, "kept", "w"};
};

TEST_F(ResidualStoreTest, WhatIsSavedIsThere) {
  EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(Save());
  const auto stored = store_.Load();
  ASSERT_OK(stored);
  EXPECT_EQ(stored->before, before_);
  EXPECT_EQ(stored->after, after_);
  EXPECT_EQ(stored->record.header.round, Round(12));
  ASSERT_EQ(stored->Of(1).size(), 4);
  EXPECT_EQ(stored->Of(1)[3], std::byte{7});
  ASSERT_OK(store_.Remove());
  EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(store_.Remove());
}

TEST_F(ResidualStoreTest, AFileThatIsCutShortOrDamagedIsNotUsed) {
  ASSERT_OK(Save());
  const std::string whole = Contents();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(ErrorOf(whole.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("kept/residual"), HasSubstr("cut short"))))
        << size;
  }
  EXPECT_THAT(ErrorOf(whole + "x"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] ^= 16;
    EXPECT_THAT(ErrorOf(flipped), StatusIs(absl::StatusCode::kDataLoss)) << i;
  }
  EXPECT_OK(ErrorOf(whole));
}

TEST_F(ResidualStoreTest, AFullDiskLeavesWhatWasThere) {
  ASSERT_OK(Save(12));
  disk_.SetCapacity(static_cast<int64_t>(Contents().size()) + 100);
  EXPECT_THAT(Save(13), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(store_.Load()->record.header.round, Round(12));
}

}  // namespace
}  // namespace lodestar::trainer
