// SPDX-License-Identifier: Apache-2.0

// DeviceGroup joins several devices of one process that compute parts of one step, and exchanges
// vectors between them. Device::MakeGroup() makes a group of one device and others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/buf.h"

namespace lodestar::kernels {

// Each member has one thread, which uses the group and the member's device. All these threads must
// call the same operations in the same order. `values` is f32, in the memory of the member's own
// device, and has the same number of elements for all members. A call returns once all members have
// called the operation. The group runs its operations later, one after the other, on its own
// streams.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual int size() const = 0;
  // Returns the way in which values are exchanged, as a text for logs: "NCCL 2.28.9" or "copies
  // between cards: why not NCCL".
  virtual std::string Describe() const = 0;

  // Makes later broadcasts to the member wait for all work that is now on its compute stream. Such
  // work may still read the vectors that the broadcasts overwrite.
  virtual void Begin(int member) = 0;
  // Sets the values of every member to the values of member 0. The operation runs after all work
  // that is now on member 0's compute stream. Returns a number for Await(). Errors: that of Fail();
  // those of a device.
  virtual absl::StatusOr<int64_t> Broadcast(int member, Buf values) = 0;
  // Sets the values of member 0 to the sums over all members. The operation runs after all work
  // that is now on their compute streams. The values of the other members do not change. Copies add
  // in the order of the members. NCCL adds in its own order. Returns a number for Await(). Errors:
  // that of Fail(); those of a device.
  virtual absl::StatusOr<int64_t> Reduce(int member, Buf values) = 0;
  // Makes later work on the member's compute stream wait for `operation` and all operations before
  // it. So this work may read and overwrite the values of these operations.
  virtual void Await(int member, int64_t operation) = 0;

  // Must be called when a member fails and stops. Until Reset(), present and later calls of the
  // other members return `why`. After several failures they return the first. May be called by any
  // thread.
  virtual void Fail(const absl::Status& why) = 0;
  // Clears the failure of Fail(). Must be called between two steps, when no member is in a call.
  virtual void Reset() = 0;
};

}  // namespace lodestar::kernels
