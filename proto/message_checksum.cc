// SPDX-License-Identifier: Apache-2.0

#include "proto/message_checksum.h"

#include <string>

#include "common/crc32c/crc32c.h"

namespace lodestar::wire {

uint32_t ChecksumOf(const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  const uint32_t crc32c = crc32c::Crc32c(bytes.data(), bytes.size());
  return crc32c == 0 ? 1 : crc32c;
}

}  // namespace lodestar::wire
