// SPDX-License-Identifier: Apache-2.0

// Checksums of whole messages that have a field `crc32c`. Without TLS, nothing else finds a bit
// that was flipped on the way, such as in a number that changes the weights.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

namespace lodestar::wire {

// Returns the CRC-32C of the message's bytes. 0 becomes 1, because 0 means that there is none.
uint32_t ChecksumOf(const google::protobuf::MessageLite& message);

template <typename Message>
void SetChecksum(Message& message) {
  message.clear_crc32c();
  message.set_crc32c(ChecksumOf(message));
}

// Checks the checksum, if the message has one. Errors: DataLoss (it does not match).
template <typename Message>
absl::Status CheckChecksum(const Message& message) {
  if (message.crc32c() == 0) return absl::OkStatus();
  Message without = message;
  without.clear_crc32c();
  if (ChecksumOf(without) == message.crc32c()) return absl::OkStatus();
  return absl::DataLossError("the message was damaged on its way: its checksum does not match");
}

}  // namespace lodestar::wire
