// SPDX-License-Identifier: Apache-2.0

#include "proto/chunk_codec.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/crc32c/crc32c.h"
#include "common/messages/contribution.h"
#include "common/storage/shared_region.h"
#include "common/testing/status_matchers.h"
#include "proto/bulk_options.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// Returns `bytes` in slices [0, cut) and [cut, end). A cut at 0 or at the end makes one slice
// empty.
grpc::ByteBuffer Buffer(const std::string& bytes, size_t cut = 0) {
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, cut)), grpc::Slice(bytes.substr(cut))};
  return grpc::ByteBuffer(slices, 2);
}

v1::PushChunk SomePush() {
  v1::PushChunk chunk;
  chunk.set_worker_id(7);
  chunk.set_incarnation(0xfedcba9876543210);
  chunk.set_round(12345);
  chunk.set_base_version(12340);
  chunk.set_bucket(300);
  chunk.set_offset(uint64_t{1} << 40);
  chunk.set_encoding(v1::ENCODING_FP32);
  chunk.set_kind(v1::CONTRIBUTION_KIND_WEIGHTS);
  chunk.set_crc32c(0xdeadbeef);
  chunk.set_scale(0.25f);
  chunk.set_num_samples(1000);
  chunk.set_data("the payload of the chunk");
  return chunk;
}

PushChunkHeader HeaderOf(const v1::PushChunk& chunk) {
  return {WorkerId(chunk.worker_id()),
          Incarnation(chunk.incarnation()),
          Round(chunk.round()),
          Version(chunk.base_version()),
          chunk.bucket(),
          chunk.offset(),
          chunk.encoding(),
          chunk.kind(),
          static_cast<uint32_t>(chunk.crc32c()),
          chunk.scale(),
          {chunk.shared_region(), chunk.shared_offset(), chunk.shared_bytes()},
          chunk.num_samples()};
}

struct Parsed {
  PushChunkHeader header;
  std::string data;
};

absl::StatusOr<Parsed> Parse(grpc::ByteBuffer buffer) {
  PushChunkReader reader(buffer);
  RETURN_IF_ERROR(reader.ReadHeader());
  if (reader.is_shared()) return absl::UnimplementedError("the payload is in shared memory");
  Parsed parsed{reader.header(), std::string(reader.data_bytes(), '\0')};
  ASSIGN_OR_RETURN(const uint32_t crc32c, reader.ReadData(parsed.data.data()));
  EXPECT_EQ(crc32c, crc32c::Crc32c(parsed.data.data(), parsed.data.size()));
  return parsed;
}

TEST(ChunkCodecTest, PushIsEncodedAsGeneratedCodeDoes) {
  v1::PushChunk chunk = SomePush();
  chunk.set_crc32c(ChecksumOf(HeaderOf(chunk), chunk.data().size()));
  const grpc::ByteBuffer buffer =
      EncodePushChunk(HeaderOf(chunk), chunk.data().data(), chunk.data().size(), nullptr);
  EXPECT_EQ(Bytes(buffer), chunk.SerializeAsString());
  v1::PushChunk defaults;
  defaults.set_data("x");
  defaults.set_crc32c(ChecksumOf(HeaderOf(defaults), 1));
  EXPECT_EQ(Bytes(EncodePushChunk(HeaderOf(defaults), "x", 1, nullptr)),
            defaults.SerializeAsString());
}

TEST(ChunkCodecTest, NoFlippedBitMakesAChunkOfAnotherContribution) {
  v1::PushChunk chunk = SomePush();
  PushChunkHeader header = HeaderOf(chunk);
  header.crc32c = crc32c::Crc32c(chunk.data().data(), chunk.data().size());
  const std::string sent =
      Bytes(EncodePushChunk(header, chunk.data().data(), chunk.data().size(), nullptr));
  int num_noticed = 0;
  for (size_t bit = 0; bit < 8 * sent.size(); ++bit) {
    std::string damaged = sent;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const absl::StatusOr<Parsed> parsed = Parse(Buffer(damaged));
    // The code must be DataLoss. With another code the sender would think that the server refuses
    // its data.
    if (!parsed.ok()) {
      EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kDataLoss)) << bit;
    }
    if (!parsed.ok() ||
        crc32c::Crc32c(parsed->data.data(), parsed->data.size()) != parsed->header.crc32c) {
      ++num_noticed;
      continue;
    }
    EXPECT_EQ(parsed->header, header) << bit;
    EXPECT_EQ(parsed->data, chunk.data()) << bit;
  }
  EXPECT_GT(num_noticed, 8 * chunk.data().size());
}

// The payload is long enough that every way of computing the checksum is used. It is cut into
// slices, like a payload from a network.
TEST(ChunkCodecTest, ADamagedByteIsNoticedAtEveryPlace) {
  std::mt19937 random(7);
  std::string data(9000, '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  PushChunkHeader header = HeaderOf(SomePush());
  header.crc32c = crc32c::Crc32c(data.data(), data.size());
  const std::string sent = Bytes(EncodePushChunk(header, data.data(), data.size(), nullptr));
  for (size_t place = 0; place < sent.size(); ++place) {
    std::string damaged = sent;
    damaged[place] ^= static_cast<char>(1 << place % 8);
    std::vector<grpc::Slice> slices;
    const size_t first_cut = 1 + place % 4500;
    slices.emplace_back(damaged.data(), first_cut);
    slices.emplace_back(damaged.data() + first_cut, damaged.size() - first_cut);
    const absl::StatusOr<Parsed> parsed = Parse(grpc::ByteBuffer(slices.data(), slices.size()));
    const bool is_noticed =
        !parsed.ok() ||
        crc32c::Crc32c(parsed->data.data(), parsed->data.size()) != parsed->header.crc32c;
    EXPECT_TRUE(is_noticed || (parsed->header == header && parsed->data == data)) << place;
    EXPECT_TRUE(is_noticed || place < sent.size() - data.size()) << place;
  }
}

TEST(ChunkCodecTest, ExtremeValuesAreEncodedAsGeneratedCodeDoes) {
  v1::PushChunk chunk;
  chunk.set_worker_id(std::numeric_limits<uint32_t>::max());
  chunk.set_incarnation(std::numeric_limits<uint64_t>::max());
  chunk.set_round(-1);
  chunk.set_base_version(std::numeric_limits<int64_t>::min());
  chunk.set_bucket(std::numeric_limits<uint32_t>::max());
  chunk.set_offset(std::numeric_limits<uint64_t>::max());
  chunk.set_encoding(static_cast<v1::Encoding>(-5));
  chunk.set_kind(static_cast<v1::ContributionKind>(1 << 30));
  chunk.set_crc32c(std::numeric_limits<uint32_t>::max());
  chunk.set_scale(-0.0f);
  chunk.set_num_samples(std::numeric_limits<int64_t>::min());
  chunk.set_data("x");
  chunk.set_crc32c(ChecksumOf(HeaderOf(chunk), chunk.data().size()));
  EXPECT_EQ(Bytes(EncodePushChunk(HeaderOf(chunk), "x", 1, nullptr)), chunk.SerializeAsString());
  ASSERT_OK_AND_ASSIGN(const Parsed parsed, Parse(Buffer(chunk.SerializeAsString())));
  EXPECT_EQ(parsed.header, HeaderOf(chunk));
}

// Generated code writes the rate behind the data, where it is refused.
TEST(ChunkCodecTest, LearningRateComesBeforeDataAndIsInTheChecksumIfThereIsOne) {
  const PushChunkHeader without = HeaderOf(SomePush());
  PushChunkHeader header = without;
  for (const double rate : {0.0, 0.1, std::numeric_limits<double>::max()}) {
    header.learning_rate = rate;
    EXPECT_NE(ChecksumOf(header, 1), ChecksumOf(without, 1)) << rate;
    const std::string sent = Bytes(EncodePushChunk(header, "x", 1, nullptr));
    ASSERT_OK_AND_ASSIGN(const Parsed parsed, Parse(Buffer(sent)));
    EXPECT_EQ(parsed.header, header);
    v1::PushChunk read;
    ASSERT_TRUE(read.ParseFromString(sent));
    EXPECT_EQ(read.learning_rate(), rate);
    EXPECT_THAT(Parse(Buffer(read.SerializeAsString())), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(ChunkCodecTest, WeightComesBeforeDataAndIsInTheChecksumIfThereIsOne) {
  const PushChunkHeader without = HeaderOf(SomePush());
  PushChunkHeader header = without;
  for (const int64_t weight : {int64_t{0}, int64_t{7}, std::numeric_limits<int64_t>::min()}) {
    header.weight = weight;
    for (const auto rate : {std::optional<double>(), std::optional<double>(0.5)}) {
      header.learning_rate = rate;
      PushChunkHeader unweighed = header;
      unweighed.weight.reset();
      EXPECT_NE(ChecksumOf(header, 1), ChecksumOf(unweighed, 1)) << weight;
      const std::string sent = Bytes(EncodePushChunk(header, "x", 1, nullptr));
      ASSERT_OK_AND_ASSIGN(const Parsed parsed, Parse(Buffer(sent)));
      EXPECT_EQ(parsed.header, header);
      v1::PushChunk read;
      ASSERT_TRUE(read.ParseFromString(sent));
      EXPECT_TRUE(read.has_weight());
      EXPECT_EQ(read.weight(), weight);
    }
  }
}

TEST(ChunkCodecTest, StateVectorComesBeforeDataAndIsInTheChecksumIfItIsNotZero) {
  PushChunkHeader header = HeaderOf(SomePush());
  const uint64_t of_weights = ChecksumOf(header, 1);
  header.state_vector = 2;
  EXPECT_NE(ChecksumOf(header, 1), of_weights);
  const std::string sent = Bytes(EncodePushChunk(header, "x", 1, nullptr));
  ASSERT_OK_AND_ASSIGN(const Parsed parsed, Parse(Buffer(sent)));
  EXPECT_EQ(parsed.header, header);
  v1::PushChunk read;
  ASSERT_TRUE(read.ParseFromString(sent));
  EXPECT_EQ(read.state_vector(), 2);
}

// A server that does not know the field then refuses the request, and does not answer with weights.
TEST(ChunkCodecTest, ChecksumOfAPullRequestCoversTheStateVectorIfItIsNotZero) {
  v1::PullRequest request;
  request.add_buckets(1);
  const uint32_t of_weights = ChecksumOf(request);
  request.set_state_vector(1);
  const uint32_t of_first = ChecksumOf(request);
  request.set_state_vector(2);
  EXPECT_NE(of_first, of_weights);
  EXPECT_NE(ChecksumOf(request), of_first);
}

TEST(ChunkCodecTest, AChunkOfASkippedStepHasNoData) {
  v1::PushChunk chunk = SomePush();
  chunk.set_num_samples(messages::kSkippedSamples);
  chunk.clear_data();
  chunk.clear_crc32c();
  PushChunkHeader header = HeaderOf(chunk);
  chunk.set_crc32c(ChecksumOf(header, 0));
  EXPECT_EQ(Bytes(EncodePushChunk(header)), chunk.SerializeAsString());
  grpc::ByteBuffer buffer = Buffer(chunk.SerializeAsString());
  PushChunkReader reader(buffer);
  ASSERT_OK(reader.ReadHeader());
  EXPECT_EQ(reader.header(), header);
  EXPECT_EQ(reader.data_bytes(), 0);
  v1::PushChunk with_data = chunk;
  with_data.set_data("x");
  with_data.set_crc32c(0);
  EXPECT_THAT(
      Parse(Buffer(with_data.SerializeAsString())),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step was skipped, but it has data")));
  v1::PushChunk with_place = chunk;
  with_place.set_shared_region(1);
  with_place.set_crc32c(0);
  EXPECT_THAT(Parse(Buffer(with_place.SerializeAsString())), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(ChunkCodecTest, PullIsEncodedAndReadAsGeneratedCodeDoes) {
  v1::PullChunk chunk;
  chunk.set_bucket(9);
  chunk.set_version(77);
  chunk.set_offset(4096);
  chunk.set_encoding(v1::ENCODING_INT8);
  chunk.set_crc32c(42);
  chunk.set_base_version(75);
  chunk.set_data("weights!");
  const PullChunkHeader header{9, Version(77), 4096, v1::ENCODING_INT8, 42, {}, Version(75)};
  chunk.set_crc32c(ChecksumOf(header, 8));
  grpc::ByteBuffer buffer = EncodePullChunk(header, "weights!", 8, nullptr);
  EXPECT_EQ(Bytes(buffer), chunk.SerializeAsString());
  PullChunkReader reader(buffer);
  ASSERT_OK(reader.ReadHeader());
  EXPECT_EQ(reader.header(), header);
  char data[8];
  ASSERT_EQ(reader.data_bytes(), sizeof(data));
  std::string looked_at;
  const auto look = [&](const ArrivedBytes& arrived) {
    looked_at.append(reinterpret_cast<const char*>(arrived.last.data()), arrived.last.size());
    EXPECT_EQ(arrived.end, looked_at.size());
  };
  ASSERT_OK(reader.ReadData(data, nullptr, look, crc32c::CopyTo::kMemory).status());
  EXPECT_EQ(std::string(data, sizeof(data)), "weights!");
  EXPECT_EQ(looked_at, "weights!");
}

TEST(ChunkCodecTest, PayloadInSharedMemoryIsNotInTheMessage) {
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(100));
  std::memcpy(region.Part(40, 7)->data(), "payload", 7);
  v1::PushChunk chunk = SomePush();
  chunk.clear_data();
  chunk.set_shared_region(uint64_t{1} << 63);
  chunk.set_shared_offset(40);
  chunk.set_shared_bytes(7);
  chunk.set_crc32c(ChecksumOf(HeaderOf(chunk), 0));
  grpc::ByteBuffer buffer = EncodePushChunk(HeaderOf(chunk));
  EXPECT_EQ(Bytes(buffer), chunk.SerializeAsString());
  PushChunkReader reader(buffer);
  ASSERT_OK(reader.ReadHeader());
  EXPECT_TRUE(reader.is_shared());
  EXPECT_EQ(reader.header(), HeaderOf(chunk));
  ASSERT_EQ(reader.data_bytes(), 7);
  char data[8] = {};
  size_t end = 0;
  const auto look = [&end](const ArrivedBytes& arrived) {
    end = arrived.end;
    EXPECT_TRUE(arrived.last.empty()) << "others may change it";
  };
  ASSERT_OK_AND_ASSIGN(const uint32_t crc32c, reader.ReadData(data, &region, look));
  EXPECT_EQ(end, 7);
  EXPECT_EQ(std::string(data), "payload");
  EXPECT_EQ(crc32c, crc32c::Crc32c("payload", 7));

  PullChunkHeader pull{9, Version(77), 4096, v1::ENCODING_FP32, 42, {5, 40, 7}};
  grpc::ByteBuffer pull_buffer = EncodePullChunk(pull);
  PullChunkReader pull_reader(pull_buffer);
  ASSERT_OK(pull_reader.ReadHeader());
  EXPECT_EQ(pull_reader.header(), pull);
}

TEST(ChunkCodecTest, RefusesPlacesInSharedMemoryThatCannotBe) {
  ASSERT_OK_AND_ASSIGN(const storage::SharedRegion region, storage::SharedRegion::Create(100));
  const auto refuses = [&](uint64_t offset, uint64_t bytes, const std::string& data = "") {
    v1::PushChunk chunk;
    chunk.set_shared_region(1);
    chunk.set_shared_offset(offset);
    chunk.set_shared_bytes(bytes);
    chunk.set_data(data);
    grpc::ByteBuffer buffer = Buffer(chunk.SerializeAsString());
    PushChunkReader reader(buffer);
    if (!reader.ReadHeader().ok()) return true;
    std::vector<char> destination(reader.data_bytes());
    return absl::IsInvalidArgument(reader.ReadData(destination.data(), &region).status());
  };
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  EXPECT_FALSE(refuses(0, 100));
  EXPECT_TRUE(refuses(0, 101));
  EXPECT_TRUE(refuses(0, 0));
  EXPECT_TRUE(refuses(100, 1));
  EXPECT_TRUE(refuses(kHuge, 2));
  EXPECT_TRUE(refuses(kHuge - 50, 100));
  EXPECT_TRUE(refuses(0, kHuge));
  EXPECT_TRUE(refuses(0, kMaxChunkBytes + 1));
  EXPECT_TRUE(refuses(0, 4, "data"));
}

TEST(ChunkCodecTest, PayloadIsNotCopiedAndItsOwnerLivesAsLongAsTheMessage) {
  auto owner = std::make_shared<std::string>(1 << 20, 'w');
  std::weak_ptr<std::string> watch = owner;
  const char* memory = owner->data();
  const size_t size = owner->size();
  {
    const grpc::ByteBuffer buffer = EncodePushChunk({}, memory, size, std::move(owner));
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()), memory);
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(ChunkCodecTest, ReadsMessagesCutAtEveryByte) {
  const v1::PushChunk chunk = SomePush();
  const std::string bytes = chunk.SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_OK_AND_ASSIGN(const Parsed parsed, Parse(Buffer(bytes, cut)));
    EXPECT_EQ(parsed.header, HeaderOf(chunk));
    EXPECT_EQ(parsed.data, chunk.data());
  }
}

TEST(ChunkCodecTest, ReadsAnyOrderOfFieldsAndSkipsUnknownOnes) {
  const std::string unknown_varint = "\xa0\x06\x7f";  // field 100
  const std::string unknown_bytes =
      "\xaa\x06\x03"
      "abc";                                                     // field 101
  const std::string unknown_group = "\xb3\x06\x08\x01\xb4\x06";  // field 102
  const std::string bucket_as_bytes = "\x2a\x02hi";              // field 5 with another wire type
  const std::string round_twice = "\x18\x05\x18\x09";
  const std::string bucket = "\x28\x03";
  const std::string data =
      "\x7a\x04"
      "data";
  const std::string bytes = unknown_group + bucket + unknown_bytes + round_twice + bucket_as_bytes +
                            unknown_varint + data + unknown_bytes;
  v1::PushChunk generated;
  ASSERT_TRUE(generated.ParseFromString(bytes));
  ASSERT_OK_AND_ASSIGN(const Parsed parsed, Parse(Buffer(bytes)));
  EXPECT_EQ(parsed.header, HeaderOf(generated));
  EXPECT_EQ(parsed.header.round, Round(9));
  EXPECT_EQ(parsed.data, "data");
}

TEST(ChunkCodecTest, UnknownGroupsAreReadAsGeneratedCodeDoes) {
  std::string bytes = SomePush().SerializeAsString();
  const auto nested = [](int depth) {
    return std::string(depth, '\x33') + std::string(depth, '\x34');  // groups with field number 6
  };
  const std::string overlong_tag = "\x80\x80\x80\x80\x80\x68";
  const std::string groups[] = {nested(1),
                                nested(100),
                                nested(101),
                                "\x33\x68\x75\x34",
                                "\x33\x68\x75",
                                "\x33\x68\x75\x2c",
                                "\x34",
                                "\x33" + overlong_tag + "\x75\x34",
                                "\x33\x32\x84\x80\x80\x80\x80\x80\x80\x80\x80\x20"
                                "data\x34"};
  int taken = 0;
  for (const std::string& group : groups) {
    v1::PushChunk wire;
    const bool is_legal = wire.ParseFromString(bytes + group);
    EXPECT_EQ(Parse(Buffer(bytes + group)).ok(), is_legal) << absl::BytesToHexString(group);
    taken += is_legal ? 1 : 0;
  }
  EXPECT_EQ(taken, 3);
}

TEST(ChunkCodecTest, RefusesFieldsAfterData) {
  const std::string data =
      "\x7a\x04"
      "data";
  const std::string bucket = "\x28\x03";
  EXPECT_THAT(Parse(Buffer(data + bucket)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("field 5 comes after data")));
  EXPECT_THAT(Parse(Buffer(bucket + data + data)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("field 15 comes after data")));
}

TEST(ChunkCodecTest, RefusesEveryTruncation) {
  const std::string bytes = SomePush().SerializeAsString();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Parse(Buffer(bytes.substr(0, length))).ok()) << length;
  }
  EXPECT_THAT(Parse(grpc::ByteBuffer()), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(ChunkCodecTest, RefusesLengthsThatLie) {
  EXPECT_THAT(
      Parse(Buffer("\x7a\x05"
                   "data")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("announces 5 bytes of data, but has 4")));
  const std::string huge = "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
  EXPECT_THAT(Parse(Buffer(huge + "data")), StatusIs(absl::StatusCode::kDataLoss));
  const std::string two_gib = "\x7a\xff\xff\xff\xff\x07";
  EXPECT_THAT(Parse(Buffer(two_gib + "data")), StatusIs(absl::StatusCode::kDataLoss));
  // The length is a number of ten bytes, whose highest bits do not fit into 64 bits. A reader that
  // drops these bits reads the number four.
  const std::string overlong = "\x84\x80\x80\x80\x80\x80\x80\x80\x80\x20";
  EXPECT_THAT(Parse(Buffer("\x7a" + overlong + "data")), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Parse(Buffer("\x32" + overlong + "data\x7a\x04" + "data")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut or broken")));
  const std::string nothing("\x7a\x00", 2);
  EXPECT_THAT(Parse(Buffer(nothing)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no data")));
}

TEST(ChunkCodecTest, RefusesChunksAboveTheLimit) {
  v1::PushChunk chunk;
  chunk.set_data(std::string(kMaxChunkBytes, 'x'));
  EXPECT_OK(Parse(Buffer(chunk.SerializeAsString())));
  chunk.set_data(std::string(kMaxChunkBytes + 1, 'x'));
  EXPECT_THAT(Parse(Buffer(chunk.SerializeAsString())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("are allowed")));
}

// Generated code must also accept, and read in the same way, every message that we accept.
TEST(ChunkCodecTest, MutatedMessagesNeverCrashNorDisagree) {
  const std::string good = SomePush().SerializeAsString();
  std::minstd_rand random(20240602);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + i % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (i % 5 == 0) bytes.resize(random() % bytes.size());
    if (i % 7 == 0) bytes.insert(random() % (bytes.size() + 1), 1 + random() % 8, '\xff');
    const absl::StatusOr<Parsed> parsed = Parse(Buffer(bytes, random() % (bytes.size() + 1)));
    if (!parsed.ok()) continue;
    ++accepted;
    v1::PushChunk generated;
    ASSERT_TRUE(generated.ParseFromString(bytes)) << i;
    // A mutated scale may be NaN, which is not equal to itself, so the encoded bytes are compared.
    const PushChunkHeader header = HeaderOf(generated);
    ASSERT_EQ(Bytes(EncodePushChunk(parsed->header, "x", 1, nullptr)),
              Bytes(EncodePushChunk(header, "x", 1, nullptr)))
        << i;
    ASSERT_EQ(parsed->data, generated.data()) << i;
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace lodestar::wire
