// LateRefusal is a refusal that takes its time. Some callers send again and again what no server
// needs: requests far too large to be meant, or calls in the name of lives that are not the
// caller's. Such a caller has only so many calls open at a time, and so gets only as many answers
// in a second as the pause allows.
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

// Does something once: after a pause, or at once when it is not to be waited for any more. What it
// does is kept until the pause is destroyed, also after it was done, and so must not own the pause.
class Pause {
 public:
  void Start(absl::Duration length, std::function<void()> then) {
    alarm_.Set(absl::ToChronoTime(absl::Now() + length),
               [then = std::move(then)](bool) { then(); });
  }
  // `then` is called soon, from another thread. Without Start(), nothing happens.
  void Cut() { alarm_.Cancel(); }

 private:
  grpc::Alarm alarm_;
};

// Refuses a call with one answer. Deletes itself.
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
