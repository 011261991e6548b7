// SPDX-License-Identifier: Apache-2.0

// Fuzzes chunks as they come from the wire or from a region of shared memory (proto/chunk_codec),
// and compares them with what the generated parser makes of the same bytes. Also fuzzes the
// elements in the chunks.

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstring>

#include "common/crc32c/crc32c.h"
#include "common/messages/contribution.h"
#include "common/params/encoding.h"
#include "common/storage/shared_region.h"
#include "kernels/codec/encoded_vectors.h"
#include "proto/bulk_options.h"
#include "proto/chunk_codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

constexpr uint64_t kRegionBytes = 64 << 10;

const storage::SharedRegion& Region() {
  static const storage::SharedRegion* const region =
      new storage::SharedRegion(std::move(storage::SharedRegion::Create(kRegionBytes)).value());
  return *region;
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  LODESTAR_CHECK(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ByteBuffer BufferOf(absl::string_view bytes, size_t cut) {
  cut = std::min(cut, bytes.size());
  const grpc::Slice slices[] = {grpc::Slice(bytes.data(), cut),
                                grpc::Slice(bytes.data() + cut, bytes.size() - cut)};
  return grpc::ByteBuffer(slices, 2);
}

wire::PushChunkHeader HeaderOf(const v1::PushChunk& chunk) {
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
          chunk.num_samples(),
          chunk.has_learning_rate() ? std::optional(chunk.learning_rate()) : std::nullopt,
          chunk.has_weight() ? std::optional(chunk.weight()) : std::nullopt,
          chunk.state_vector()};
}

wire::PullChunkHeader HeaderOf(const v1::PullChunk& chunk) {
  return {chunk.bucket(),
          Version(chunk.version()),
          chunk.offset(),
          chunk.encoding(),
          static_cast<uint32_t>(chunk.crc32c()),
          {chunk.shared_region(), chunk.shared_offset(), chunk.shared_bytes()},
          Version(chunk.base_version())};
}

grpc::ByteBuffer Encode(const wire::PushChunkHeader& header) {
  return wire::EncodePushChunk(header);
}
grpc::ByteBuffer Encode(const wire::PullChunkHeader& header) {
  return wire::EncodePullChunk(header);
}
grpc::ByteBuffer Encode(const wire::PushChunkHeader& header, const std::string& data) {
  return wire::EncodePushChunk(header, data.data(), data.size(), nullptr);
}
grpc::ByteBuffer Encode(const wire::PullChunkHeader& header, const std::string& data) {
  return wire::EncodePullChunk(header, data.data(), data.size(), nullptr);
}

size_t LeastBytes(const wire::PushChunkHeader& header) {
  return header.num_samples == messages::kSkippedSamples ? 0 : 1;
}
size_t LeastBytes(const wire::PullChunkHeader&) { return 1; }

template <typename Header>
struct Chunk {
  Header header;
  bool is_shared = false;
  std::string data;  // empty if the data are shared
};

template <typename Header>
absl::StatusOr<Chunk<Header>> Read(grpc::ByteBuffer buffer) {
  wire::ChunkReader<Header> reader(buffer);
  const absl::Status status = reader.ReadHeader();
  if (!status.ok()) return status;
  LODESTAR_CHECK(reader.data_bytes() >= LeastBytes(reader.header()) &&
                 reader.data_bytes() <= wire::kMaxChunkBytes);
  std::string data(reader.data_bytes(), '\0');
  const absl::StatusOr<uint32_t> crc32c = reader.ReadData(data.data(), &Region());
  if (!crc32c.ok()) return crc32c.status();
  LODESTAR_CHECK(*crc32c == crc32c::Crc32c(data.data(), data.size()));
  return Chunk<Header>{reader.header(), reader.is_shared(),
                       reader.is_shared() ? std::string() : data};
}

template <typename Header, typename Wire>
void CheckBytes(absl::string_view bytes, size_t cut) {
  const absl::StatusOr<Chunk<Header>> chunk = Read<Header>(BufferOf(bytes, cut));
  if (!chunk.ok()) return Refuse(chunk.status());
  Accept();
  // Compares the encoded bytes, because a scale that is NaN is not equal to itself.
  const auto encoded = [](const Chunk<Header>& it) {
    return BytesOf(it.is_shared ? Encode(it.header) : Encode(it.header, it.data));
  };
  const std::string again = encoded(*chunk);
  const absl::StatusOr<Chunk<Header>> back = Read<Header>(BufferOf(again, cut));
  LODESTAR_CHECK(back.ok()) << back.status();
  LODESTAR_CHECK(encoded(*back) == again);
  Wire wire;
  LODESTAR_CHECK(wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  LODESTAR_CHECK(encoded({HeaderOf(wire), chunk->is_shared, wire.data()}) == again);
}

// Input: [where the message is cut | message]
template <typename Header, typename Wire>
void ReadChunk(absl::string_view bytes) {
  const size_t cut = TakeByte(bytes);
  CheckBytes<Header, Wire>(bytes, cut);
}

// Does the same after making the checksums valid, as an attacker would.
template <typename Header, typename Wire>
void ReadSummedChunk(absl::string_view bytes) {
  const size_t cut = TakeByte(bytes);
  Wire wire;
  if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  wire.set_crc32c(0);
  Header header = HeaderOf(wire);
  header.crc32c = crc32c::Crc32c(wire.data().data(), wire.data().size());
  wire.set_crc32c(wire::ChecksumOf(header, header.place.region != 0 ? 0 : wire.data().size()));
  CheckBytes<Header, Wire>(wire.SerializeAsString(), cut);
}

void SumPullRequest(absl::string_view bytes) {
  v1::PullRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  Accept();
  LODESTAR_CHECK(wire::ChecksumOf(request) == wire::ChecksumOf(v1::PullRequest(request)));
}

// Does what a server does with a bucket in top-k. Input: [elements kept | bits, and elements by 40
// | its bytes]
void TakeTopK(absl::string_view bytes) {
  const int kept = TakeByte(bytes) + 1;
  const size_t form = TakeByte(bytes);
  const params::Encoding encoding = params::Encoding::TopK(kept, form % 2 == 0 ? 2 : 4);
  const auto n = static_cast<int64_t>(form / 2 * 40 + 1);
  std::vector<std::byte> data(params::EncodedBytes(encoding, n));
  std::memcpy(data.data(), bytes.data(), std::min(data.size(), bytes.size()));
  std::vector<float> decoded(n);
  codec::CodecOf(encoding).Decode(data.data(), n, decoded.data());
  if (codec::FirstMalformed(encoding, data.data(), n) != n) return;
  if (codec::FirstNotBelow(encoding, data.data(), 1e18f, n) != n) return;
  Accept();
  std::vector<float> sum(n, 0.0f);
  std::vector<float> weights(n, 0.0f);
  codec::AccumulateDecoded(encoding, data.data(), n, 1.0f, sum.data(), kernels::Accumulate::kAdd);
  codec::AddWhereKept(encoding, data.data(), n, 1.0f, weights.data());
  float total = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    LODESTAR_CHECK(sum[i] == decoded[i]);
    LODESTAR_CHECK(sum[i] == 0.0f || weights[i] == 1.0f);
    total += weights[i];
  }
  const int64_t of_last = std::min<int64_t>(kept, n % params::kTopKBlock);
  LODESTAR_CHECK(total == static_cast<float>(n / params::kTopKBlock * kept + of_last));
}

std::vector<std::string> TopKSeeds() {
  std::vector<std::string> seeds;
  for (const size_t form : {size_t{8}, size_t{207}}) {
    constexpr int kKept = 5;
    const params::Encoding encoding = params::Encoding::TopK(kKept, form % 2 == 0 ? 2 : 4);
    std::vector<float> values(form / 2 * 40 + 1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) - 50;
    const auto n = static_cast<int64_t>(values.size());
    std::string seed = {static_cast<char>(kKept - 1), static_cast<char>(form)};
    seed.resize(2 + params::EncodedBytes(encoding, n));
    codec::CodecOf(encoding).Encode(values.data(), n, {},
                                    reinterpret_cast<std::byte*>(seed.data() + 2));
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

wire::PushChunkHeader SomePush() {
  return {.worker = WorkerId(7),
          .incarnation = Incarnation(0xfedcba9876543210),
          .round = Round(12345),
          .base_version = Version(12340),
          .bucket = 300,
          .offset = uint64_t{1} << 40,
          .encoding = v1::ENCODING_FP32,
          .kind = v1::CONTRIBUTION_KIND_WEIGHTS,
          .crc32c = 0xdeadbeef,
          .scale = 0.25f,
          .num_samples = 1000};
}

wire::PullChunkHeader SomePull() {
  return {.bucket = 3,
          .version = Version(12345),
          .offset = 77,
          .encoding = v1::ENCODING_INT4,
          .crc32c = 0xdeadbeef,
          .base_version = Version(12)};
}

template <typename Wire, typename Header>
std::vector<std::string> SeedsOf(Header header) {
  std::vector<std::string> seeds;
  const std::string data = "the payload of the chunk";
  seeds.push_back("\x05" + BytesOf(Encode(header, data)));
  Wire unsummed;
  unsummed.ParseFromString(BytesOf(Encode(header, data)));
  unsummed.set_crc32c(1);
  seeds.push_back("\x40" + unsummed.SerializeAsString());
  header.place = {1, 4096, 512};
  seeds.push_back("\x03" + BytesOf(Encode(header)));
  return seeds;
}

std::vector<std::string> PushSeeds() { return SeedsOf<v1::PushChunk>(SomePush()); }
std::vector<std::string> PullSeeds() { return SeedsOf<v1::PullChunk>(SomePull()); }

std::vector<std::string> PullRequestSeeds() {
  v1::PullRequest request;
  request.set_worker_id(3);
  request.set_min_round(9);
  request.add_buckets(4);
  request.add_held_versions(5);
  return {request.SerializeAsString()};
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {
      {"push", ReadChunk<wire::PushChunkHeader, v1::PushChunk>, PushSeeds},
      {"pull", ReadChunk<wire::PullChunkHeader, v1::PullChunk>, PullSeeds},
      {"summed_push", ReadSummedChunk<wire::PushChunkHeader, v1::PushChunk>, PushSeeds},
      {"summed_pull", ReadSummedChunk<wire::PullChunkHeader, v1::PullChunk>, PullSeeds},
      {"pull_request", SumPullRequest, PullRequestSeeds},
      {"topk", TakeTopK, TopKSeeds},
  };
  return kCases;
}

}  // namespace lodestar::fuzz
