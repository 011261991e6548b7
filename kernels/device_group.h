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
// call the same operations in the same order, each with the same number of f32 elements in the
// memory of its own device. An operation returns when all members have called it, before it is
// carried out. The group carries out one operation after the other, on streams of its own.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual int size() const = 0;
  // Returns how vectors travel, as a text for logs: "NCCL 2.28.9" or "copies between cards: why not
  // NCCL".
  virtual std::string Describe() const = 0;

  // Makes later broadcasts to the member wait for all work that its compute stream has been given
  // so far, so that no such work still reads the vectors that the broadcasts overwrite.
  virtual void Begin(int member) = 0;
  // Sets the values of every member to those of member 0, after all work that member 0's compute
  // stream has been given so far. Returns the number that Await() takes. Errors: that of Fail(), or
  // of a device.
  virtual absl::StatusOr<int64_t> Broadcast(int member, Buf values) = 0;
  // Sets the values of member 0 to the sums over all members, after all work that their compute
  // streams have been given so far. The values of the other members do not change. Copies add in
  // the order of the members; NCCL adds in an order of its own. Returns the number that Await()
  // takes. Errors: that of Fail(), or of a device.
  virtual absl::StatusOr<int64_t> Reduce(int member, Buf values) = 0;
  // Makes later work of the member's compute stream wait for `operation` and those before it. That
  // work finds the values that have arrived, and may overwrite values.
  virtual void Await(int member, int64_t operation) = 0;

  // Says that a member stops. Calls of the other members, now or later, return `why` until Reset().
  // If there are several failures, they return the first. Any thread may call this.
  virtual void Fail(const absl::Status& why) = 0;
  // Ends the effect of Fail(). Call between two steps, when no member is in a call.
  virtual void Reset() = 0;
};

}  // namespace lodestar::kernels
