// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/status_rpc.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/history_convert.h"
#include "proto/status_mapping.h"
#include "proto/transport_security.h"
#include "server/membership/registration_limit.h"

namespace lodestar::rpc {
namespace {

constexpr int64_t kDefaultIntervalMs = 1000;
constexpr int64_t kMinIntervalMs = 100;
constexpr int64_t kMaxIntervalMs = 3'600'000;
constexpr char kStopping[] = "the server is stopping";

}  // namespace

// A StatusWatch is one WatchStatus stream: it writes a status, waits for an alarm, and writes the
// next. It deletes itself when gRPC is done and no alarm is running. The alarm may run even after
// the gRPC server and the owner of this object are destroyed. So the alarm reads from the owner
// only under `mutex_` and before Finish().
class StatusWatch : public grpc::ServerWriteReactor<v1::ClusterStatus> {
 public:
  StatusWatch(StatusRpc* owner, absl::StatusOr<std::optional<security::Identity>> caller,
              int64_t interval_ms, limits::OriginPlaces::Place place)
      : owner_(owner),
        caller_(std::move(caller)),
        interval_ms_(interval_ms),
        place_(std::move(place)) {}

  void WriteNow() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_finished_) return;
    if (const absl::Status may = owner_->Check(caller_); !may.ok()) {
      is_finished_ = true;
      return Finish(wire::ToGrpcStatus(may));
    }
    message_ = owner_->read_();
    StartWrite(&message_);
  }

  void End(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (is_finished_) return;
    is_finished_ = true;
    if (alarm_ != nullptr) alarm_->Cancel();
    Finish(status);
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!ok) return End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection is gone"));
    absl::MutexLock lock(&mutex_);
    if (is_finished_) return;
    references_.fetch_add(1);
    // A new alarm is made each time, because the function of the last alarm may still be running.
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(std::chrono::system_clock::now() + std::chrono::milliseconds(interval_ms_),
                [this](bool expired) {
                  if (expired) WriteNow();
                  Release();
                });
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    owner_->Forget(this);
    Release();
  }

 private:
  // The function of an alarm may run after OnDone(). The later of the two deletes the object.
  void Release() {
    if (references_.fetch_sub(1) == 1) delete this;
  }

  StatusRpc* const owner_;
  const absl::StatusOr<std::optional<security::Identity>> caller_;
  const int64_t interval_ms_;
  const limits::OriginPlaces::Place place_;
  std::atomic<int> references_ = 1;
  absl::Mutex mutex_;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  v1::ClusterStatus message_ ABSL_GUARDED_BY(mutex_);
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// A StatusCall is one unary call. It holds `place` until the client has read the reply or is gone.
class StatusCall final : public grpc::ServerUnaryReactor {
 public:
  explicit StatusCall(limits::OriginPlaces::Place place) : place_(std::move(place)) {}
  void OnDone() override { delete this; }

 private:
  const limits::OriginPlaces::Place place_;
};

grpc::ServerUnaryReactor* StatusRpc::Answer(grpc::CallbackServerContext* context,
                                            absl::FunctionRef<void()> fill) {
  limits::OriginPlaces::Place place = answers_.Take(membership::PeerOrigin(context->peer()));
  const bool has_place = place != nullptr;
  auto* const reactor = new StatusCall(std::move(place));
  if (!has_place) {
    reactor->Finish(Refuse(answers_, "status answers have not been read yet"));
    return reactor;
  }
  fill();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* StatusRpc::GetStatus(grpc::CallbackServerContext* context,
                                               const v1::GetStatusRequest*,
                                               v1::ClusterStatus* reply) {
  return Answer(context, [&] { *reply = read_(); });
}

grpc::ServerUnaryReactor* StatusRpc::GetHistory(grpc::CallbackServerContext* context,
                                                const v1::HistoryRequest* request,
                                                v1::HistoryReply* reply) {
  return Answer(context, [&] { *reply = wire::HistoryToProto(read_history_(), *request); });
}

absl::Status StatusRpc::Check(
    const absl::StatusOr<std::optional<security::Identity>>& caller) const {
  if (!caller.ok()) return caller.status();
  return check_ == nullptr || !caller->has_value() ? absl::OkStatus() : check_(**caller);
}

grpc::Status StatusRpc::Refuse(const limits::OriginPlaces& places, absl::string_view what) {
  refusals_->Count(limits::LimitReached::kWatches);
  return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                      absl::StrCat("too many ", what, "; allowed are ", places.config().of_origin,
                                   " per address, and ", places.config().in_all, " in all"));
}

grpc::ServerWriteReactor<v1::ClusterStatus>* StatusRpc::WatchStatus(
    grpc::CallbackServerContext* context, const v1::WatchStatusRequest* request) {
  limits::OriginPlaces::Place place = watching_.Take(membership::PeerOrigin(context->peer()));
  const bool has_place = place != nullptr;
  const int64_t asked = request->interval_ms() == 0 ? kDefaultIntervalMs : request->interval_ms();
  auto* watch =
      new StatusWatch(this, wire::CallerOf(*context->auth_context()),
                      std::clamp(asked, kMinIntervalMs, kMaxIntervalMs), std::move(place));
  bool is_stopping = false;
  {
    absl::MutexLock lock(&mutex_);
    watches_.insert(watch);
    is_stopping = is_stopping_;
  }
  if (!has_place) {
    watch->End(Refuse(watching_, "programs watch the status"));
    return watch;
  }
  if (is_stopping) {
    watch->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, kStopping));
  } else {
    watch->WriteNow();
  }
  return watch;
}

void StatusRpc::Forget(StatusWatch* watch) {
  absl::MutexLock lock(&mutex_);
  watches_.erase(watch);
}

void StatusRpc::Stop(bool is_job_over) {
  const grpc::Status end =
      is_job_over ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, kStopping);
  // While this lock is held, no watch can be deleted: each must first call Forget(), which takes
  // the lock.
  absl::MutexLock lock(&mutex_);
  is_stopping_ = true;
  for (StatusWatch* watch : watches_) watch->End(end);
}

}  // namespace lodestar::rpc
