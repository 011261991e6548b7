// What a request of this process waits for, said once and again when it changes. Pure.
#pragma once

#include <string>

#include "proto/status_service.pb.h"

namespace lodestar {

class RequestWatch {
 public:
  // `what`: see PendingRequest.
  explicit RequestWatch(std::string what) : what_(std::move(what)) {}

  // What to tell the operator now; empty: nothing new.
  std::string Look(const v1::ClusterStatus& status);

 private:
  std::string what_;
  std::string told_;
};

}  // namespace lodestar
