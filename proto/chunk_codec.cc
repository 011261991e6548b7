// SPDX-License-Identifier: Apache-2.0

#include "proto/chunk_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/messages/contribution.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"

namespace lodestar::wire {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Maximum size of a chunk's header: eighteen fields. Each has at most twelve bytes with its tag.
constexpr size_t kMaxHeaderBytes = 18 * 12;

// Maximum number of payload bytes that are copied between two calls of `arrived`. They fit into a
// second-level cache.
constexpr size_t kCachedBytes = 128 << 10;

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("a chunk of weights or gradients was damaged on its way, "
                   "or its sender is of another release: ",
                   what));
}

// Writes fields as generated code does: fields with their default value are left out.
class HeaderWriter {
 public:
  void Varint(int field, uint64_t value) {
    if (value == 0) return;
    Tag(field, WireFormatLite::WIRETYPE_VARINT);
    end_ = CodedOutputStream::WriteVarint64ToArray(value, end_);
  }
  void Fixed64(int field, uint64_t value) {
    if (value == 0) return;
    Tag(field, WireFormatLite::WIRETYPE_FIXED64);
    end_ = CodedOutputStream::WriteLittleEndian64ToArray(value, end_);
  }
  // Write a number that has presence, also if it is 0.
  void OptionalVarint(int field, std::optional<int64_t> value) {
    if (!value.has_value()) return;
    Tag(field, WireFormatLite::WIRETYPE_VARINT);
    end_ = CodedOutputStream::WriteVarint64ToArray(*value, end_);
  }
  void Double(int field, std::optional<double> value) {
    if (!value.has_value()) return;
    Tag(field, WireFormatLite::WIRETYPE_FIXED64);
    end_ = CodedOutputStream::WriteLittleEndian64ToArray(std::bit_cast<uint64_t>(*value), end_);
  }
  void Fixed32(int field, uint32_t value) {
    if (value == 0) return;
    Tag(field, WireFormatLite::WIRETYPE_FIXED32);
    end_ = CodedOutputStream::WriteLittleEndian32ToArray(value, end_);
  }
  grpc::Slice Finish() { return grpc::Slice(bytes_, end_ - bytes_); }
  grpc::Slice FinishWithData(int field, size_t data_bytes) {
    Tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
    end_ = CodedOutputStream::WriteVarint64ToArray(data_bytes, end_);
    return grpc::Slice(bytes_, end_ - bytes_);
  }

 private:
  void Tag(int field, WireFormatLite::WireType type) {
    end_ = CodedOutputStream::WriteTagToArray(WireFormatLite::MakeTag(field, type), end_);
  }

  uint8_t bytes_[kMaxHeaderBytes];
  uint8_t* end_ = bytes_;
};

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::ByteBuffer Assemble(grpc::Slice header, const void* data, size_t data_bytes,
                          std::shared_ptr<const void> owner) {
  // grpc::Slice takes no pointer to const, but the sending side never writes to `data`.
  grpc::Slice slices[] = {std::move(header),
                          grpc::Slice(const_cast<void*>(data), data_bytes, ReleaseOwner,
                                      new std::shared_ptr<const void>(std::move(owner)))};
  return grpc::ByteBuffer(slices, 2);
}

struct FieldValue {
  uint64_t varint = 0;
  uint64_t fixed64 = 0;
  uint32_t fixed32 = 0;
};

constexpr int ChecksumField(const PushChunkHeader&) { return v1::PushChunk::kCrc32CFieldNumber; }
constexpr int ChecksumField(const PullChunkHeader&) { return v1::PullChunk::kCrc32CFieldNumber; }

// Returns the checksum of the fields. Callers pass the fields in the order of their numbers.
// `before` is the checksum of what precedes them.
template <typename... Fields>
uint32_t ExtendCrc(uint32_t before, Fields... fields) {
  uint8_t bytes[sizeof...(fields) * sizeof(uint64_t)];
  uint8_t* end = bytes;
  ((end = CodedOutputStream::WriteLittleEndian64ToArray(static_cast<uint64_t>(fields), end)), ...);
  return crc32c::Crc32c(bytes, end - bytes, before);
}

template <typename... Fields>
uint32_t CrcOfFields(Fields... fields) {
  return ExtendCrc(0, fields...);
}

uint32_t CrcOf(const PushChunkHeader& header, size_t data_bytes) {
  uint32_t crc32c =
      CrcOfFields(header.worker.value(), header.incarnation.value(), header.round.value(),
                  header.base_version.value(), header.bucket, header.offset, header.encoding,
                  header.kind, std::bit_cast<uint32_t>(header.scale), header.place.region,
                  header.place.offset, header.place.bytes, header.num_samples, data_bytes);
  // Clients that do not know these fields leave them out.
  if (header.learning_rate.has_value()) {
    crc32c = ExtendCrc(crc32c, std::bit_cast<uint64_t>(*header.learning_rate));
  }
  if (header.weight.has_value()) crc32c = ExtendCrc(crc32c, *header.weight);
  return header.state_vector == 0 ? crc32c : ExtendCrc(crc32c, header.state_vector);
}

uint32_t CrcOf(const PullChunkHeader& header, size_t data_bytes) {
  return CrcOfFields(header.bucket, header.version.value(), header.offset, header.encoding,
                     header.base_version.value(), header.place.region, header.place.offset,
                     header.place.bytes, data_bytes);
}

bool HasPayload(const PushChunkHeader& header) {
  return header.num_samples != messages::kSkippedSamples;
}
bool HasPayload(const PullChunkHeader&) { return true; }

// Returns the wire type that the field has in the .proto, or -1 if there is no such field.
int WireTypeOf(const PushChunkHeader&, int field) {
  switch (field) {
    case v1::PushChunk::kWorkerIdFieldNumber:
    case v1::PushChunk::kIncarnationFieldNumber:
    case v1::PushChunk::kRoundFieldNumber:
    case v1::PushChunk::kBaseVersionFieldNumber:
    case v1::PushChunk::kBucketFieldNumber:
    case v1::PushChunk::kOffsetFieldNumber:
    case v1::PushChunk::kEncodingFieldNumber:
    case v1::PushChunk::kKindFieldNumber:
    case v1::PushChunk::kSharedRegionFieldNumber:
    case v1::PushChunk::kSharedOffsetFieldNumber:
    case v1::PushChunk::kSharedBytesFieldNumber:
    case v1::PushChunk::kNumSamplesFieldNumber:
    case v1::PushChunk::kWeightFieldNumber:
    case v1::PushChunk::kStateVectorFieldNumber:
      return WireFormatLite::WIRETYPE_VARINT;
    case v1::PushChunk::kCrc32CFieldNumber:
    case v1::PushChunk::kLearningRateFieldNumber:
      return WireFormatLite::WIRETYPE_FIXED64;
    case v1::PushChunk::kScaleFieldNumber:
      return WireFormatLite::WIRETYPE_FIXED32;
    case v1::PushChunk::kDataFieldNumber:
      return WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    default:
      return -1;
  }
}

int WireTypeOf(const PullChunkHeader&, int field) {
  switch (field) {
    case v1::PullChunk::kBucketFieldNumber:
    case v1::PullChunk::kVersionFieldNumber:
    case v1::PullChunk::kOffsetFieldNumber:
    case v1::PullChunk::kEncodingFieldNumber:
    case v1::PullChunk::kBaseVersionFieldNumber:
    case v1::PullChunk::kSharedRegionFieldNumber:
    case v1::PullChunk::kSharedOffsetFieldNumber:
    case v1::PullChunk::kSharedBytesFieldNumber:
      return WireFormatLite::WIRETYPE_VARINT;
    case v1::PullChunk::kCrc32CFieldNumber:
      return WireFormatLite::WIRETYPE_FIXED64;
    case v1::PullChunk::kDataFieldNumber:
      return WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    default:
      return -1;
  }
}

void SetField(PushChunkHeader& header, int field, FieldValue value) {
  switch (field) {
    case v1::PushChunk::kWorkerIdFieldNumber:
      header.worker = WorkerId(static_cast<uint32_t>(value.varint));
      break;
    case v1::PushChunk::kIncarnationFieldNumber:
      header.incarnation = Incarnation(value.varint);
      break;
    case v1::PushChunk::kRoundFieldNumber:
      header.round = Round(static_cast<int64_t>(value.varint));
      break;
    case v1::PushChunk::kBaseVersionFieldNumber:
      header.base_version = Version(static_cast<int64_t>(value.varint));
      break;
    case v1::PushChunk::kBucketFieldNumber:
      header.bucket = static_cast<uint32_t>(value.varint);
      break;
    case v1::PushChunk::kOffsetFieldNumber:
      header.offset = value.varint;
      break;
    case v1::PushChunk::kEncodingFieldNumber:
      header.encoding = static_cast<v1::Encoding>(static_cast<int32_t>(value.varint));
      break;
    case v1::PushChunk::kKindFieldNumber:
      header.kind = static_cast<v1::ContributionKind>(static_cast<int32_t>(value.varint));
      break;
    case v1::PushChunk::kCrc32CFieldNumber:
      header.crc32c = static_cast<uint32_t>(value.fixed64);
      break;
    case v1::PushChunk::kScaleFieldNumber:
      header.scale = std::bit_cast<float>(value.fixed32);
      break;
    case v1::PushChunk::kSharedRegionFieldNumber:
      header.place.region = value.varint;
      break;
    case v1::PushChunk::kSharedOffsetFieldNumber:
      header.place.offset = value.varint;
      break;
    case v1::PushChunk::kSharedBytesFieldNumber:
      header.place.bytes = value.varint;
      break;
    case v1::PushChunk::kNumSamplesFieldNumber:
      header.num_samples = static_cast<int64_t>(value.varint);
      break;
    case v1::PushChunk::kLearningRateFieldNumber:
      header.learning_rate = std::bit_cast<double>(value.fixed64);
      break;
    case v1::PushChunk::kWeightFieldNumber:
      header.weight = static_cast<int64_t>(value.varint);
      break;
    case v1::PushChunk::kStateVectorFieldNumber:
      header.state_vector = static_cast<uint32_t>(value.varint);
      break;
  }
}

void SetField(PullChunkHeader& header, int field, FieldValue value) {
  switch (field) {
    case v1::PullChunk::kBucketFieldNumber:
      header.bucket = static_cast<uint32_t>(value.varint);
      break;
    case v1::PullChunk::kVersionFieldNumber:
      header.version = Version(static_cast<int64_t>(value.varint));
      break;
    case v1::PullChunk::kOffsetFieldNumber:
      header.offset = value.varint;
      break;
    case v1::PullChunk::kEncodingFieldNumber:
      header.encoding = static_cast<v1::Encoding>(static_cast<int32_t>(value.varint));
      break;
    case v1::PullChunk::kCrc32CFieldNumber:
      header.crc32c = static_cast<uint32_t>(value.fixed64);
      break;
    case v1::PullChunk::kBaseVersionFieldNumber:
      header.base_version = Version(static_cast<int64_t>(value.varint));
      break;
    case v1::PullChunk::kSharedRegionFieldNumber:
      header.place.region = value.varint;
      break;
    case v1::PullChunk::kSharedOffsetFieldNumber:
      header.place.offset = value.varint;
      break;
    case v1::PullChunk::kSharedBytesFieldNumber:
      header.place.bytes = value.varint;
      break;
  }
}

// Returns the next tag. Returns 0 at the end of the message, or if the tag is not legal: generated
// code accepts tags of at most five bytes, but ReadTag() accepts ten.
uint32_t ReadLegalTag(CodedInputStream& input) {
  constexpr int kMaxTagBytes = 5;
  const int start = input.CurrentPosition();
  const uint32_t tag = input.ReadTag();
  return input.CurrentPosition() - start > kMaxTagBytes ? 0 : tag;
}

// Reads a length of at most five bytes, as generated code does. ReadVarint64() would accept ten
// bytes and drop bits beyond the 64th.
bool ReadLength(CodedInputStream& input, uint64_t& length) {
  constexpr int kMaxLengthBytes = 5;
  const int start = input.CurrentPosition();
  return input.ReadVarint64(&length) && input.CurrentPosition() - start <= kMaxLengthBytes;
}

// Maximum depth of groups, the same as in generated code.
constexpr int kMaxGroupDepth = 100;

// Skips an unknown field. SkipField() of protobuf accepts more: field number 0, tags of any length
// within groups, and lengths above 32 bits, of which it ignores the upper bits.
bool SkipUnknown(CodedInputStream& input, uint32_t tag, int depth = 0) {
  if (WireFormatLite::GetTagFieldNumber(tag) == 0) return false;
  switch (WireFormatLite::GetTagWireType(tag)) {
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
      uint64_t length = 0;
      return ReadLength(input, length) && length <= kMaxMessageBytes &&
             input.Skip(static_cast<int>(length));
    }
    case WireFormatLite::WIRETYPE_START_GROUP: {
      if (depth == kMaxGroupDepth) return false;
      const int field = WireFormatLite::GetTagFieldNumber(tag);
      const uint32_t end = WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_END_GROUP);
      while (const uint32_t inner = ReadLegalTag(input)) {
        if (inner == end) return true;
        if (!SkipUnknown(input, inner, depth + 1)) return false;
      }
      return false;
    }
    default:
      return WireFormatLite::SkipField(&input, tag);
  }
}

bool ReadValue(CodedInputStream& input, int wire_type, FieldValue& value) {
  switch (wire_type) {
    case WireFormatLite::WIRETYPE_VARINT:
      return input.ReadVarint64(&value.varint);
    case WireFormatLite::WIRETYPE_FIXED64:
      return input.ReadLittleEndian64(&value.fixed64);
    default:
      return input.ReadLittleEndian32(&value.fixed32);
  }
}

HeaderWriter WriteHeader(const PushChunkHeader& header, size_t data_bytes = 0) {
  HeaderWriter writer;
  writer.Varint(v1::PushChunk::kWorkerIdFieldNumber, header.worker.value());
  writer.Varint(v1::PushChunk::kIncarnationFieldNumber, header.incarnation.value());
  writer.Varint(v1::PushChunk::kRoundFieldNumber, header.round.value());
  writer.Varint(v1::PushChunk::kBaseVersionFieldNumber, header.base_version.value());
  writer.Varint(v1::PushChunk::kBucketFieldNumber, header.bucket);
  writer.Varint(v1::PushChunk::kOffsetFieldNumber, header.offset);
  writer.Varint(v1::PushChunk::kEncodingFieldNumber, static_cast<int64_t>(header.encoding));
  writer.Varint(v1::PushChunk::kKindFieldNumber, static_cast<int64_t>(header.kind));
  writer.Fixed64(v1::PushChunk::kCrc32CFieldNumber, ChecksumOf(header, data_bytes));
  writer.Fixed32(v1::PushChunk::kScaleFieldNumber, std::bit_cast<uint32_t>(header.scale));
  writer.Varint(v1::PushChunk::kSharedRegionFieldNumber, header.place.region);
  writer.Varint(v1::PushChunk::kSharedOffsetFieldNumber, header.place.offset);
  writer.Varint(v1::PushChunk::kSharedBytesFieldNumber, header.place.bytes);
  writer.Varint(v1::PushChunk::kNumSamplesFieldNumber, header.num_samples);
  writer.Double(v1::PushChunk::kLearningRateFieldNumber, header.learning_rate);
  writer.OptionalVarint(v1::PushChunk::kWeightFieldNumber, header.weight);
  writer.Varint(v1::PushChunk::kStateVectorFieldNumber, header.state_vector);
  return writer;
}

HeaderWriter WriteHeader(const PullChunkHeader& header, size_t data_bytes = 0) {
  HeaderWriter writer;
  writer.Varint(v1::PullChunk::kBucketFieldNumber, header.bucket);
  writer.Varint(v1::PullChunk::kVersionFieldNumber, header.version.value());
  writer.Varint(v1::PullChunk::kOffsetFieldNumber, header.offset);
  writer.Varint(v1::PullChunk::kEncodingFieldNumber, static_cast<int64_t>(header.encoding));
  writer.Fixed64(v1::PullChunk::kCrc32CFieldNumber, ChecksumOf(header, data_bytes));
  writer.Varint(v1::PullChunk::kBaseVersionFieldNumber, header.base_version.value());
  writer.Varint(v1::PullChunk::kSharedRegionFieldNumber, header.place.region);
  writer.Varint(v1::PullChunk::kSharedOffsetFieldNumber, header.place.offset);
  writer.Varint(v1::PullChunk::kSharedBytesFieldNumber, header.place.bytes);
  return writer;
}

grpc::ByteBuffer MessageOf(const grpc::Slice& slice) { return grpc::ByteBuffer(&slice, 1); }

}  // namespace

uint64_t ChecksumOf(const PushChunkHeader& header, size_t data_bytes) {
  return uint64_t{CrcOf(header, data_bytes)} << 32 | header.crc32c;
}

uint64_t ChecksumOf(const PullChunkHeader& header, size_t data_bytes) {
  return uint64_t{CrcOf(header, data_bytes)} << 32 | header.crc32c;
}

uint32_t ChecksumOf(const v1::PullRequest& request) {
  uint32_t crc32c = CrcOfFields(request.worker_id(), request.incarnation(), request.min_round());
  const auto add = [&crc32c](uint64_t value) {
    uint8_t bytes[sizeof(value)];
    CodedOutputStream::WriteLittleEndian64ToArray(value, bytes);
    crc32c = crc32c::Crc32c(bytes, sizeof(bytes), crc32c);
  };
  add(request.buckets_size());
  for (const uint32_t bucket : request.buckets()) add(bucket);
  add(request.encoding());
  add(request.held_versions_size());
  for (const int64_t version : request.held_versions()) add(version);
  // Two fields are in the checksum only if they are set, because clients that do not know them
  // leave them out.
  if (request.max_chunk_bytes() != 0) add(request.max_chunk_bytes());
  add(request.shared_region());
  if (request.state_vector() != 0) add(request.state_vector());
  return crc32c;
}

grpc::ByteBuffer EncodePushChunk(const PushChunkHeader& header) {
  return MessageOf(WriteHeader(header).Finish());
}

grpc::ByteBuffer EncodePullChunk(const PullChunkHeader& header) {
  return MessageOf(WriteHeader(header).Finish());
}

grpc::ByteBuffer EncodePushChunk(const PushChunkHeader& header, const void* data, size_t data_bytes,
                                 std::shared_ptr<const void> owner) {
  return Assemble(
      WriteHeader(header, data_bytes).FinishWithData(v1::PushChunk::kDataFieldNumber, data_bytes),
      data, data_bytes, std::move(owner));
}

grpc::ByteBuffer EncodePullChunk(const PullChunkHeader& header, const void* data, size_t data_bytes,
                                 std::shared_ptr<const void> owner) {
  return Assemble(
      WriteHeader(header, data_bytes).FinishWithData(v1::PullChunk::kDataFieldNumber, data_bytes),
      data, data_bytes, std::move(owner));
}

template <typename Header>
ChunkReader<Header>::ChunkReader(grpc::ByteBuffer& message) {
  message_.Swap(&message);
  reader_.emplace(&message_);
  input_.emplace(&*reader_);
}

template <typename Header>
absl::Status ChunkReader<Header>::ReadHeader() {
  RETURN_IF_ERROR(ReadFields());
  const size_t sent_bytes = is_shared() ? 0 : data_bytes_;
  const uint32_t seen = CrcOf(header_, sent_bytes);
  has_header_checksum_ = checksum_ >> 32 == seen;
  if (checksum_ >> 32 != 0 && !has_header_checksum_) {
    return absl::DataLossError(absl::StrCat(
        "the header of a chunk was damaged on its way: its crc32c is ", absl::Hex(seen),
        ", but it was sent with ", absl::Hex(checksum_ >> 32), "; send the chunk again"));
  }
  if (!HasPayload(header_)) {
    if (data_bytes_ == 0 && !is_shared()) return absl::OkStatus();
    return Malformed("the chunk says that its step was skipped, but it has data");
  }
  return CheckLength(data_bytes_);
}

template <typename Header>
absl::Status ChunkReader<Header>::ReadFields() {
  if (!reader_->status().ok()) return Malformed(reader_->status().error_message());
  while (const uint32_t tag = ReadLegalTag(*input_)) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const int wire_type = WireFormatLite::GetTagWireType(tag);
    if (wire_type != WireTypeOf(header_, field)) {
      if (!SkipUnknown(*input_, tag)) return Malformed("a field is cut or broken");
      continue;
    }
    if (wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return BeginData();
    FieldValue value;
    if (!ReadValue(*input_, wire_type, value)) return Malformed("a field is cut or broken");
    SetField(header_, field, value);
    if (field == ChecksumField(header_)) checksum_ = value.fixed64;
  }
  if (!input_->ConsumedEntireMessage()) return Malformed("a tag is broken");
  data_bytes_ = is_shared() ? header_.place.bytes : 0;
  return absl::OkStatus();
}

template <typename Header>
absl::Status ChunkReader<Header>::CheckLength(uint64_t bytes) const {
  if (bytes == 0) return Malformed("the chunk has no data");
  if (bytes <= kMaxChunkBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a chunk has ", bytes,
                                                 " bytes of data, but at most ", kMaxChunkBytes,
                                                 " are allowed; send smaller chunks"));
}

// Reads the length of the payload, which is the field `data`, and stops before its bytes. Refuses a
// length that is greater than the rest of the message.
template <typename Header>
absl::Status ChunkReader<Header>::BeginData() {
  uint64_t length = 0;
  if (!ReadLength(*input_, length)) return Malformed("the length of data is cut or broken");
  if (is_shared())
    return Malformed("the chunk has data, but says that its data is in shared memory");
  const uint64_t left = message_.Length() - static_cast<uint64_t>(input_->CurrentPosition());
  if (length > left) {
    return Malformed(
        absl::StrCat("the chunk announces ", length, " bytes of data, but has ", left));
  }
  data_bytes_ = length;
  return absl::OkStatus();
}

template <typename Header>
absl::StatusOr<uint32_t> ChunkReader<Header>::ReadData(
    void* destination, const storage::SharedRegion* region,
    absl::FunctionRef<void(const ArrivedBytes&)> arrived, crc32c::CopyTo copy_to) {
  auto* const out = static_cast<char*>(destination);
  uint32_t crc32c = 0;
  size_t done = 0;
  const auto copy = [&](const void* piece, size_t size) {
    crc32c = crc32c::Crc32cCopy(out + done, piece, size, crc32c, copy_to);
    done += size;
  };
  if (is_shared()) {
    LODESTAR_CHECK(region != nullptr) << "region " << header_.place.region;
    ASSIGN_OR_RETURN(const absl::Span<const char> source,
                     region->Part(header_.place.offset, header_.place.bytes));
    while (done < source.size()) {
      copy(source.data() + done, std::min(kCachedBytes, source.size() - done));
      arrived({.end = done, .last = {}});
    }
    return crc32c;
  }
  while (done < data_bytes_) {
    const void* piece = nullptr;
    int size = 0;
    if (!input_->GetDirectBufferPointer(&piece, &size)) return Malformed("data is cut");
    // Copies bytes until the piece or the payload ends, or until kCachedBytes are copied. Then
    // `arrived` is called.
    const size_t taken = std::min(
        {data_bytes_ - done, static_cast<size_t>(size), kCachedBytes - done % kCachedBytes});
    copy(piece, taken);
    arrived({.end = done, .last = {static_cast<const std::byte*>(piece), taken}});
    input_->Skip(static_cast<int>(taken));
  }
  RETURN_IF_ERROR(ReadRest());
  return crc32c;
}

// Reads the fields after `data`. Only unknown fields are legal there, because a later version may
// add them.
template <typename Header>
absl::Status ChunkReader<Header>::ReadRest() {
  while (const uint32_t tag = ReadLegalTag(*input_)) {
    if (WireFormatLite::GetTagWireType(tag) ==
        WireTypeOf(header_, WireFormatLite::GetTagFieldNumber(tag))) {
      return Malformed(absl::StrCat("field ", WireFormatLite::GetTagFieldNumber(tag),
                                    " comes after data, which must be last"));
    }
    if (!SkipUnknown(*input_, tag)) return Malformed("a field is cut or broken");
  }
  return input_->ConsumedEntireMessage() ? absl::OkStatus() : Malformed("a tag is broken");
}

template class ChunkReader<PushChunkHeader>;
template class ChunkReader<PullChunkHeader>;

}  // namespace lodestar::wire
