// DeviceGroup: several devices of one process that compute parts of one step, and the exchange of
// vectors between them. A device makes one of itself and others: Device::MakeGroup().
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/buf.h"

namespace lodestar::kernels {

// One thread per member uses it and the member's device; all of them call the same operations in
// the same order, each with as many f32 elements of its own device's memory. An operation returns
// when all members have called it, before it is carried out: that happens on streams of the
// group's own, one operation after the other.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual int size() const = 0;
  // How vectors travel, for logs: "NCCL 2.28.9"; "copies between cards: why not NCCL".
  virtual std::string Describe() const = 0;

  // Broadcasts that the member receives from now on begin after all that its compute stream has
  // been given up to now: nothing of that reads what they overwrite any more.
  virtual void Begin(int member) = 0;
  // The values of every member become those of member 0, as of all that its compute stream has been
  // given up to now. Returns what Await() takes. Errors: that of Fail(), or of a device.
  virtual absl::StatusOr<int64_t> Broadcast(int member, Buf values) = 0;
  // The values of member 0 become the sums over all members, those of the others stay; as of all
  // that their compute streams have been given up to now. Copies add in the order of members, NCCL
  // in one of its own. Returns and errors as above.
  virtual absl::StatusOr<int64_t> Reduce(int member, Buf values) = 0;
  // What the member's compute stream is given from now on comes after the operation and those
  // before it: values have arrived, and may be written.
  virtual void Await(int member, int64_t operation) = 0;

  // A member does not go on: calls of the others, now or later, return `why` (the first, if there
  // are several) until Reset(). Any thread.
  virtual void Fail(const absl::Status& why) = 0;
  // Comes between two steps, when no member is in a call.
  virtual void Reset() = 0;
};

}  // namespace lodestar::kernels
