// SPDX-License-Identifier: Apache-2.0

// LateRefusal refuses a call after a pause. Some callers repeat calls that are always refused:
// requests far too large, or calls in the name of incarnations that are not the caller's. The
// number of open calls per caller is limited. So the pause limits how many refusals a caller gets
// per second.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {

inline constexpr absl::Duration kRefusalPause = absl::Seconds(1);

// A Pause calls a function once: when the pause is over, or soon after Cut(). The Pause owns the
// function until it is destroyed, so the function must not own the Pause.
class Pause {
 public:
  void Start(absl::Duration length, std::function<void()> then) {
    alarm_.Set(absl::ToChronoTime(absl::Now() + length),
               [then = std::move(then)](bool) { then(); });
  }
  // Ends the pause, so that `then` is called soon, from another thread. Does nothing without
  // Start().
  void Cut() { alarm_.Cancel(); }

 private:
  grpc::Alarm alarm_;
};

// A LateRefusal refuses a call with one answer. It deletes itself.
class LateRefusal final : public grpc::ServerUnaryReactor {
 public:
  LateRefusal(const absl::Status& status, absl::Duration length) {
    pause_.Start(length, [this, status] { Finish(wire::ToGrpcStatus(status)); });
  }
  void OnCancel() override { pause_.Cut(); }
  void OnDone() override { delete this; }

 private:
  Pause pause_;
};

}  // namespace lodestar::rpc
