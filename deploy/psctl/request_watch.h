// SPDX-License-Identifier: Apache-2.0

// RequestWatch makes messages about what a request to the server waits for, such as a checkpoint. A
// new message comes only if this has changed. It does no input or output.
#pragma once

#include <string>

#include "proto/status_service.pb.h"

namespace lodestar::psctl {

class RequestWatch {
 public:
  // `what` is PendingRequest.what (proto/status_service.proto) of the request that is watched.
  explicit RequestWatch(std::string what) : what_(std::move(what)) {}

  // Returns the message for the operator. Empty means that there is nothing new.
  std::string Look(const v1::ClusterStatus& status);

 private:
  std::string what_;
  std::string told_;
};

}  // namespace lodestar::psctl
