// SPDX-License-Identifier: Apache-2.0

#include "worker/client/bulk_transport.h"

#include "common/runtime/check.h"

namespace lodestar::client {

void PushSession::AddDeviceBucket(uint32_t bucket, Version /*base_version*/,
                                  const DevicePayload& /*payload*/) {
  LODESTAR_CHECK(false) << "bucket " << bucket << " in a device's memory, which is out of reach";
}

}  // namespace lodestar::client
