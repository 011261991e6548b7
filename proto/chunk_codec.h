// SPDX-License-Identifier: Apache-2.0

// Encodes and decodes PushChunk and PullChunk (proto/parameter_service.proto) by hand. The bytes
// are legal protobuf. The payload is not copied when it is sent. When it is received, it is copied
// once, from gRPC's buffer to the caller's destination.
//
//   out: ByteBuffer [slice: all small fields, tag and length of `data` | slice over the tensor]
//   in:  small fields -> the caller finds the destination -> `data` straight into it, summed
//
// The reader accepts every legal encoding in which `data` comes after the other known fields. It
// skips unknown fields.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/ids.h"
#include "common/storage/shared_region.h"
#include "proto/parameter_service.pb.h"

namespace lodestar::wire {

// The place of a payload that is in shared memory.
struct SharedPlace {
  uint64_t region = 0;  // 0 means that the payload is in the message
  uint64_t offset = 0;
  uint64_t bytes = 0;

  friend bool operator==(const SharedPlace&, const SharedPlace&) = default;
};

struct PushChunkHeader {
  WorkerId worker;
  Incarnation incarnation;
  Round round;
  Version base_version;
  uint32_t bucket = 0;
  uint64_t offset = 0;  // elements from the start of the bucket
  v1::Encoding encoding = v1::ENCODING_UNSPECIFIED;
  v1::ContributionKind kind = v1::CONTRIBUTION_KIND_UNSPECIFIED;
  uint32_t crc32c = 0;  // checksum of the payload
  float scale = 0.0f;   // 0 means a factor of 1
  SharedPlace place = {};
  // Number of samples that the contribution was computed on. 0 means all samples of the grant.
  // kSkippedSamples means that there is no payload.
  int64_t num_samples = 0;
  std::optional<double> learning_rate = {};  // of the program's optimizer
  std::optional<int64_t> weight = {};        // in the mean, in place of num_samples
  uint32_t state_vector = 0;                 // 0 means that the payload is no optimizer state

  friend bool operator==(const PushChunkHeader&, const PushChunkHeader&) = default;
};

struct PullChunkHeader {
  uint32_t bucket = 0;
  Version version;
  uint64_t offset = 0;  // elements from the start of the bucket
  v1::Encoding encoding = v1::ENCODING_UNSPECIFIED;
  uint32_t crc32c = 0;  // checksum of the payload
  SharedPlace place = {};
  Version base_version = {};  // for changes: the version that they start from

  friend bool operator==(const PullChunkHeader&, const PullChunkHeader&) = default;
};

// Returns the value of the field crc32c for a chunk with this header and `data_bytes` bytes of
// data. The value contains a checksum of the payload and a checksum of the other fields.
uint64_t ChecksumOf(const PushChunkHeader& header, size_t data_bytes);
uint64_t ChecksumOf(const PullChunkHeader& header, size_t data_bytes);

// Returns the value of the field crc32c for a request. The checksum finds damaged requests. A
// damaged min_round could make a pull wait for a version that never comes.
uint32_t ChecksumOf(const v1::PullRequest& request);

// Return a message whose payload is in shared memory, at header.place.
grpc::ByteBuffer EncodePushChunk(const PushChunkHeader& header);
grpc::ByteBuffer EncodePullChunk(const PullChunkHeader& header);

// Return a message that refers to `data` without a copy. The message owns a reference to `owner`
// until gRPC has released the bytes, which may be after the end of the call.
grpc::ByteBuffer EncodePushChunk(const PushChunkHeader& header, const void* data, size_t data_bytes,
                                 std::shared_ptr<const void> owner);
grpc::ByteBuffer EncodePullChunk(const PullChunkHeader& header, const void* data, size_t data_bytes,
                                 std::shared_ptr<const void> owner);

// Progress of a payload that is arriving.
struct ArrivedBytes {
  size_t end;  // number of bytes in the destination
  // The bytes that were copied last, in gRPC's buffer and not in the destination. They are still in
  // the cache, and do not change while `arrived` runs. The span is empty if the payload is in
  // shared memory, because the peer may change that memory.
  absl::Span<const std::byte> last;
};

// Reads one message in two steps. Between ReadHeader() and ReadData(), the caller finds the
// destination of the payload, or waits for it. Not thread-safe, but the two steps may run on
// different threads.
template <typename Header>
class ChunkReader {
 public:
  // Moves the content out of `message`, which is empty afterwards.
  explicit ChunkReader(grpc::ByteBuffer& message);
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // Reads the small fields and stops at the payload. Must be called only once. Errors:
  //   DataLoss         the message is not legal protobuf, or its header was damaged on the way. Or
  //                    the payload is missing, longer than the message, in two places (message and
  //                    shared memory), before a known field, or sent for a skipped step.
  //   InvalidArgument  the payload is larger than kMaxChunkBytes.
  absl::Status ReadHeader();
  const Header& header() const { return header_; }
  // Returns the length of the payload: 1 to kMaxChunkBytes, or 0 for a step that was skipped.
  // Requires: ReadHeader() was OK.
  size_t data_bytes() const { return data_bytes_; }
  // Returns true if the message has a checksum of its header. A checksum with the value 0 also
  // counts. Must be called after ReadHeader().
  bool has_header_checksum() const { return has_header_checksum_; }
  // Returns true if the payload is in the region header().place.region.
  bool is_shared() const { return header_.place.region != 0; }
  // Copies the payload to `destination`, which has room for data_bytes(). Returns the checksum of
  // the bytes written there, which is computed during the copy. `region` is header().place.region
  // if is_shared(), else unused. Calls `arrived` after each part that was copied, in order. Must be
  // called only once, after ReadHeader() was OK. Errors: as ReadHeader(); InvalidArgument
  // (header().place is not in the region).
  absl::StatusOr<uint32_t> ReadData(
      void* destination, const storage::SharedRegion* region = nullptr,
      absl::FunctionRef<void(const ArrivedBytes&)> arrived = [](const ArrivedBytes&) {},
      crc32c::CopyTo copy_to = crc32c::CopyTo::kCaches);

 private:
  absl::Status ReadFields();
  absl::Status ReadRest();
  absl::Status BeginData();
  absl::Status CheckLength(uint64_t bytes) const;

  // The order matters: reader_ uses message_, and input_ uses reader_.
  grpc::ByteBuffer message_;
  std::optional<grpc::ProtoBufferReader> reader_;
  std::optional<google::protobuf::io::CodedInputStream> input_;
  Header header_;
  uint64_t checksum_ = 0;  // checksum that the message had
  bool has_header_checksum_ = false;
  size_t data_bytes_ = 0;
};

using PushChunkReader = ChunkReader<PushChunkHeader>;
using PullChunkReader = ChunkReader<PullChunkHeader>;

}  // namespace lodestar::wire
