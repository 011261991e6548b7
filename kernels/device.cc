// SPDX-License-Identifier: Apache-2.0

#include "kernels/device.h"

#include <cstring>

#include "common/runtime/check.h"

namespace lodestar::kernels {

absl::Status Device::RegisterHostMemory(void* /*memory*/, size_t /*bytes*/) {
  return absl::OkStatus();
}

void Device::UnregisterHostMemory(void* /*memory*/) {}

absl::Status Device::CopyNow(void* destination, const void* source, size_t bytes,
                             StreamKind /*stream*/, absl::FunctionRef<void()> meanwhile) {
  std::memcpy(destination, source, bytes);
  meanwhile();
  return absl::OkStatus();
}

void Device::EncodeAndUpdate(params::Encoding encoding, void* encoded, Buf next_residual,
                             Buf values, float scale, Buf residual, const Rounding& rounding,
                             float decay, StreamKind stream) {
  Encode(encoding, encoded, values, scale, residual, rounding, stream);
  Copy(next_residual.data, residual.data, values.num_elements * sizeof(float), stream);
  UpdateResidual(encoding, next_residual, values, scale, encoded, decay, stream);
}

EventId Device::RecordTimed(StreamKind stream) { return Record(stream); }

absl::StatusOr<double> Device::SecondsBetween(EventId /*from*/, EventId /*to*/) {
  return absl::UnimplementedError("this device runs inline and has no clock of its own");
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> Device::MakeGroup(
    absl::Span<Device* const> /*members*/) {
  return absl::UnimplementedError(
      "only CUDA cards compute parts of one step; give this worker one device, or start several");
}

void Device::BeginGraph() { LODESTAR_CHECK(supports_graphs()); }

absl::StatusOr<GraphId> Device::EndGraph() {
  return absl::UnimplementedError("this device has no graphs");
}

void Device::LaunchGraph(GraphId /*graph*/) { LODESTAR_CHECK(supports_graphs()); }

}  // namespace lodestar::kernels
