#include "worker/trainer/testing/delayed_device.h"

#include <cstring>

#include "common/check.h"
#include "kernels/device_factory.h"

namespace lodestar {

DelayedDevice::DelayedDevice(Order order)
    : order_(order), cpu_(*MakeDevice("cpu", 1, nullptr)), capabilities_(cpu_->capabilities()) {
  capabilities_.name = "delayed cpu";
  capabilities_.memory_is_host = false;
}

void DelayedDevice::FailAt(StreamKind stream, int count) {
  absl::MutexLock lock(&mutex_);
  const int index = static_cast<int>(stream);
  fail_at_[index] = num_run_[index] + count;
}

int64_t DelayedDevice::num_run(StreamKind stream) const {
  absl::MutexLock lock(&mutex_);
  return num_run_[static_cast<int>(stream)];
}

std::vector<std::thread::id> DelayedDevice::waiters() const {
  absl::MutexLock lock(&mutex_);
  return waiters_;
}

absl::StatusOr<void*> DelayedDevice::Allocate(size_t bytes) {
  absl::StatusOr<void*> memory = cpu_->Allocate(bytes);
  // NaN, so that values read before they are written show.
  if (memory.ok()) std::memset(*memory, 0xff, bytes);
  return memory;
}

EventId DelayedDevice::Record(StreamKind stream) {
  absl::MutexLock lock(&mutex_);
  const EventId event = ++last_event_;
  pending_events_[event] = static_cast<int>(stream);
  queues_[static_cast<int>(stream)].push_back({.work = nullptr, .waits_for = 0, .happens = event});
  if (order_ == Order::kCopiesFirst) RunCopies();
  return event;
}

void DelayedDevice::Wait(StreamKind stream, EventId event) {
  absl::MutexLock lock(&mutex_);
  queues_[static_cast<int>(stream)].push_back({.work = nullptr, .waits_for = event, .happens = 0});
}

absl::Status DelayedDevice::Synchronize(EventId event) {
  absl::MutexLock lock(&mutex_);
  waiters_.push_back(std::this_thread::get_id());
  RunUntil(event);
  return failure_;
}

absl::StatusOr<double> DelayedDevice::SecondsBetween(EventId from, EventId to) {
  absl::MutexLock lock(&mutex_);
  RunUntil(from);
  RunUntil(to);
  if (!failure_.ok()) return failure_;
  return static_cast<double>(event_times_.at(to) - event_times_.at(from));
}

void DelayedDevice::Queue(StreamKind stream, Work work) {
  absl::MutexLock lock(&mutex_);
  queues_[static_cast<int>(stream)].push_back(
      {.work = std::move(work), .waits_for = 0, .happens = 0});
  if (order_ == Order::kCopiesFirst) RunCopies();
}

int64_t DelayedDevice::Unsupported() const {
  LODESTAR_CHECK(false) << "not an operation of the delayed device";
  return 0;
}

bool DelayedDevice::HasHappened(EventId event) const { return pending_events_.count(event) == 0; }

void DelayedDevice::RunNext(int stream) {
  const Item item = std::move(queues_[stream].front());
  queues_[stream].pop_front();
  if (item.waits_for != 0) RunUntil(item.waits_for);
  if (item.happens != 0) {
    pending_events_.erase(item.happens);
    event_times_[item.happens] = num_run_[0] + num_run_[1] + num_run_[2];
  }
  if (item.work == nullptr) return;
  if (++num_run_[stream] == fail_at_[stream]) {
    failure_.Update(absl::InternalError("delayed cpu: this work was made to fail"));
  }
  if (failure_.ok()) item.work(cpu_.get());
}

void DelayedDevice::RunUntil(EventId event) {
  while (!HasHappened(event)) RunNext(pending_events_.at(event));
}

void DelayedDevice::RunCopies() {
  for (const StreamKind kind : {StreamKind::kHostToDevice, StreamKind::kDeviceToHost}) {
    const int stream = static_cast<int>(kind);
    std::deque<Item>& queue = queues_[stream];
    while (!queue.empty() && HasHappened(queue.front().waits_for)) RunNext(stream);
  }
}

}  // namespace lodestar
