// SPDX-License-Identifier: Apache-2.0

// DelayedDevice is a CPU device for tests that behaves like a GPU. Its memory does not count as
// host memory, and its streams run as late as allowed. If code forgets to wait for an event, it
// computes from old values, and a test gets another result.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace lodestar::trainer {

class DelayedDevice final : public kernels::Device {
 public:
  enum class Order : uint8_t {
    // Work runs only when a thread waits for it.
    kLate,
    // Copies run as soon as their events allow, before all computations.
    kCopiesFirst,
  };

  explicit DelayedDevice(Order order);

  // Makes piece of work number `count` of the stream fail. Number 1 is the next piece that runs.
  // After the failure, all work fails.
  void FailAt(kernels::StreamKind stream, int count);
  // Returns the number of pieces of work of the stream that have run.
  int64_t num_run(kernels::StreamKind stream) const;
  // Returns the threads that have called Synchronize(), in the order of the calls.
  std::vector<std::thread::id> waiters() const;

  const kernels::DeviceCapabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Release(void* memory) override { cpu_->Release(memory); }
  size_t FreeMemoryBytes() override { return cpu_->FreeMemoryBytes(); }
  absl::StatusOr<void*> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void ReleaseHost(void* memory) override { Release(memory); }
  kernels::EventId Record(kernels::StreamKind stream) override;
  void Wait(kernels::StreamKind stream, kernels::EventId event) override;
  absl::Status Synchronize(kernels::EventId event) override;
  // Returns a pretended time: one second per piece of work that ran between the two events on any
  // stream.
  absl::StatusOr<double> SecondsBetween(kernels::EventId from, kernels::EventId to) override;

#include "kernels/device_operations.inc"

 private:
  using Work = std::function<void(kernels::Device*)>;
  // An entry of a stream's queue: work, a wait for an event, or the place at which an event
  // happens.
  struct Item {
    Work work;
    kernels::EventId waits_for = 0;
    kernels::EventId happens = 0;
  };
  static constexpr int kNumStreams = 3;

  // Queue an operation of the CPU device with copies of its arguments. Compute() queues it on the
  // compute stream.
  template <typename... Params>
  void Compute(void (Device::*operation)(Params...), std::decay_t<Params>... arguments);
  template <typename... Params>
  void Queue(kernels::StreamKind stream, void (Device::*operation)(Params...),
             std::decay_t<Params>... arguments) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasHappened(kernels::EventId event) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunNext(int stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunUntil(kernels::EventId event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunCopies() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Order order_;
  const std::unique_ptr<kernels::Device> cpu_;
  kernels::DeviceCapabilities capabilities_;

  mutable absl::Mutex mutex_;
  std::deque<Item> queues_[kNumStreams] ABSL_GUARDED_BY(mutex_);
  int64_t num_run_[kNumStreams] ABSL_GUARDED_BY(mutex_) = {};
  int64_t fail_at_[kNumStreams] ABSL_GUARDED_BY(mutex_) = {-1, -1, -1};
  kernels::EventId last_event_ ABSL_GUARDED_BY(mutex_) = 0;
  // The stream of each event that has not happened.
  std::map<kernels::EventId, int> pending_events_ ABSL_GUARDED_BY(mutex_);
  std::map<kernels::EventId, int64_t> event_times_
      ABSL_GUARDED_BY(mutex_);  // Only events that have happened.
  std::vector<std::thread::id> waiters_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::trainer
