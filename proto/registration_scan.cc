// SPDX-License-Identifier: Apache-2.0

#include "proto/registration_scan.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "proto/cluster_service.pb.h"

namespace lodestar::wire {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t kLayout = WireFormatLite::MakeTag(v1::RegisterRequest::kLayoutFieldNumber,
                                                     WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kTensor = WireFormatLite::MakeTag(v1::Layout::kTensorsFieldNumber,
                                                     WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

absl::Status Damaged() {
  return absl::DataLossError("the registration is not a legal RegisterRequest; send it again");
}

// Calls `on_field` with the tag of each field. `on_field` must read the field. Stops and returns
// false if `on_field` returns false.
template <typename OnField>
bool ForEachField(CodedInputStream& in, OnField on_field) {
  while (const uint32_t tag = in.ReadTag()) {
    if (!on_field(tag)) return false;
  }
  return in.ConsumedEntireMessage();
}

}  // namespace

absl::StatusOr<int64_t> CountTensors(google::protobuf::io::ZeroCopyInputStream* bytes,
                                     int64_t most) {
  CodedInputStream in(bytes);
  int64_t tensors = 0;
  const auto count_in_layout = [&](uint32_t tag) {
    if (tag == kTensor && ++tensors > most) return false;
    return WireFormatLite::SkipField(&in, tag);
  };
  const bool is_whole = ForEachField(in, [&](uint32_t tag) {
    if (tag != kLayout) return WireFormatLite::SkipField(&in, tag);
    int length = 0;
    if (!in.ReadVarintSizeAsInt(&length)) return false;
    const CodedInputStream::Limit outer = in.PushLimit(length);
    if (!ForEachField(in, count_in_layout) || in.BytesUntilLimit() != 0) return false;
    in.PopLimit(outer);
    return true;
  });
  if (tensors > most) return tensors;
  if (!is_whole) return Damaged();
  return tensors;
}

}  // namespace lodestar::wire
