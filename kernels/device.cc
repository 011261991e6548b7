#include "kernels/device.h"

#include "common/check.h"

namespace lodestar {

EventId Device::RecordTimed(StreamKind stream) { return Record(stream); }

absl::StatusOr<double> Device::SecondsBetween(EventId /*from*/, EventId /*to*/) {
  return absl::UnimplementedError("this device runs inline and has no clock of its own");
}

void Device::BeginGraph() { LODESTAR_CHECK(supports_graphs()); }

absl::StatusOr<GraphId> Device::EndGraph() {
  return absl::UnimplementedError("this device has no graphs");
}

void Device::LaunchGraph(GraphId /*graph*/) { LODESTAR_CHECK(supports_graphs()); }

}  // namespace lodestar
