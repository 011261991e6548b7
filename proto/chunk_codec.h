// PushChunk and PullChunk (proto/parameter_service.proto) by hand: legal protobuf, but the payload
// is never copied on the way out and is copied once, into its final place, on the way in.
//
//   out: ByteBuffer [slice: all small fields, tag and length of `data` | slice over the tensor]
//   in:  small fields -> the caller finds the destination -> `data` straight into it, summed
//
// Any legal encoding is read, provided that `data` comes after the other known fields; unknown
// fields are skipped.
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

// Where a payload lies that is not in its message.
struct SharedPlace {
  uint64_t region = 0;  // 0 means that it is in the message
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
  uint32_t crc32c = 0;  // of the payload
  float scale = 0.0f;   // 0 means 1
  SharedPlace place = {};
  // 0 means all samples of the grant; kSkippedSamples means that there is no payload.
  int64_t num_samples = 0;

  friend bool operator==(const PushChunkHeader&, const PushChunkHeader&) = default;
};

struct PullChunkHeader {
  uint32_t bucket = 0;
  Version version;
  uint64_t offset = 0;  // elements from the start of the bucket
  v1::Encoding encoding = v1::ENCODING_UNSPECIFIED;
  uint32_t crc32c = 0;  // of the payload
  SharedPlace place = {};
  Version base_version = {};  // of changes

  friend bool operator==(const PullChunkHeader&, const PullChunkHeader&) = default;
};

// What a chunk with this header and so many bytes of `data` has in its field crc32c: the checksum
// of the payload, and one of the rest.
uint64_t ChecksumOf(const PushChunkHeader& header, size_t data_bytes);
uint64_t ChecksumOf(const PullChunkHeader& header, size_t data_bytes);

// What the field crc32c of a request has: a pull that was damaged on its way may be one of a
// version that never comes.
uint32_t ChecksumOf(const v1::PullRequest& request);

// Messages whose payload is in shared memory, at header.place.
grpc::ByteBuffer EncodePushChunk(const PushChunkHeader& header);
grpc::ByteBuffer EncodePullChunk(const PullChunkHeader& header);

// The message refers to `data` and holds `owner` until gRPC has let go of the bytes, which may be
// after the call has ended.
grpc::ByteBuffer EncodePushChunk(const PushChunkHeader& header, const void* data, size_t data_bytes,
                                 std::shared_ptr<const void> owner);
grpc::ByteBuffer EncodePullChunk(const PullChunkHeader& header, const void* data, size_t data_bytes,
                                 std::shared_ptr<const void> owner);

// How much of a payload has arrived.
struct ArrivedBytes {
  size_t end;  // so many are in the destination
  // The bytes that have come last, as they were copied from. They are still in the cache, even if
  // the destination is not, while `arrived` is told of them, and nothing changes them. The span is
  // empty for a payload in shared memory, which others may change.
  absl::Span<const std::byte> last;
};

// Reads one message in two steps, so that the destination may be found, or waited for, in between.
// Not thread-safe; the two calls may come from different threads.
template <typename Header>
class ChunkReader {
 public:
  // Takes the message over; it is empty afterwards.
  explicit ChunkReader(grpc::ByteBuffer& message);
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // Reads the small fields and stops at the payload. Call once. Errors: DataLoss for what is not
  // legal protobuf, a payload that is longer than the message or also in shared memory, fields
  // after it, no data (or some, of a skipped step), and a header that is not as it was sent: it was
  // damaged on its way; InvalidArgument for more than kMaxChunkBytes of data.
  absl::Status ReadHeader();
  const Header& header() const { return header_; }
  // Length of the payload; between 1 and kMaxChunkBytes, or 0 of a skipped step, once ReadHeader()
  // was OK.
  size_t data_bytes() const { return data_bytes_; }
  // Returns true if the header came with its checksum, which may be 0. Call after ReadHeader().
  bool has_header_checksum() const { return has_header_checksum_; }
  // Whether the payload is in the region header().place.region.
  bool is_shared() const { return header_.place.region != 0; }
  // Copies the payload to `destination`, which has room for data_bytes(), and returns the checksum
  // of what it wrote there, computed in the same pass. `region` is the one named if is_shared(),
  // and not used otherwise. `arrived` is told of the bytes of the payload, in order, as soon as
  // they are there. Call once, after ReadHeader() was OK. Errors: as ReadHeader(); InvalidArgument
  // for a place that is not in the region.
  absl::StatusOr<uint32_t> ReadData(
      void* destination, const SharedRegion* region = nullptr,
      absl::FunctionRef<void(const ArrivedBytes&)> arrived = [](const ArrivedBytes&) {},
      CopyTo copy_to = CopyTo::kCaches);

 private:
  absl::Status ReadFields();
  absl::Status ReadRest();
  absl::Status BeginData();
  absl::Status CheckLength(uint64_t bytes) const;

  // Each refers to the one before it.
  grpc::ByteBuffer message_;
  std::optional<grpc::ProtoBufferReader> reader_;
  std::optional<google::protobuf::io::CodedInputStream> input_;
  Header header_;
  uint64_t checksum_ = 0;  // as it came
  bool has_header_checksum_ = false;
  size_t data_bytes_ = 0;
};

using PushChunkReader = ChunkReader<PushChunkHeader>;
using PullChunkReader = ChunkReader<PullChunkHeader>;

}  // namespace lodestar::wire
