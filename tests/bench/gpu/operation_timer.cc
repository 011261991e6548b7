// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/gpu/operation_timer.h"

#include <algorithm>
#include <utility>

#include "common/runtime/status_macros.h"

namespace lodestar {
namespace {

// The first runs are not timed: they load code, choose what to fuse, and begin with low clocks.
constexpr int kWarmUps = 3;

size_t NumBytes(const kernels::Buf& buf) {
  return static_cast<size_t>(buf.num_elements) * kernels::DTypeBytes(buf.dtype);
}

}  // namespace

absl::StatusOr<double> OperationTimer::Seconds(const std::vector<kernels::Buf>& overwritten,
                                               const std::function<void()>& operation) {
  std::vector<model::DeviceMemory> copies;
  for (const kernels::Buf& buf : overwritten) {
    ASSIGN_OR_RETURN(model::DeviceMemory copy,
                     model::DeviceMemory::Allocate(device_, NumBytes(buf)));
    device_->Copy(copy.data(), buf.data, NumBytes(buf), kernels::StreamKind::kCompute);
    copies.push_back(std::move(copy));
  }
  return TimeRuns(overwritten, copies, operation);
}

absl::StatusOr<double> OperationTimer::TimeRuns(const std::vector<kernels::Buf>& overwritten,
                                                const std::vector<model::DeviceMemory>& copies,
                                                const std::function<void()>& operation) {
  const auto put_back = [&] {
    for (size_t i = 0; i < overwritten.size(); ++i) {
      device_->Copy(overwritten[i].data, copies[i].data(), NumBytes(overwritten[i]),
                    kernels::StreamKind::kCompute);
    }
  };
  for (int i = 0; i < kWarmUps; ++i) {
    put_back();
    operation();
  }
  std::vector<double> seconds;
  for (int i = 0; i < repeats_; ++i) {
    put_back();
    const kernels::EventId begin = device_->RecordTimed(kernels::StreamKind::kCompute);
    operation();
    const kernels::EventId end = device_->RecordTimed(kernels::StreamKind::kCompute);
    RETURN_IF_ERROR(device_->Synchronize(end));
    ASSIGN_OR_RETURN(const double took, device_->SecondsBetween(begin, end));
    seconds.push_back(took);
  }
  put_back();
  RETURN_IF_ERROR(device_->Synchronize(device_->Record(kernels::StreamKind::kCompute)));
  std::nth_element(seconds.begin(), seconds.begin() + repeats_ / 2, seconds.end());
  return seconds[repeats_ / 2];
}

}  // namespace lodestar
