// SPDX-License-Identifier: Apache-2.0

#include "worker/client/cluster_session.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <iterator>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/logging/logging.h"
#include "common/net/address_list.h"
#include "common/net/round_trip_time.h"
#include "common/params/encoding.h"
#include "common/runtime/clock.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/cluster_service.grpc.pb.h"
#include "proto/convert_cluster.h"
#include "proto/status_mapping.h"
#include "worker/client/call_tracer.h"
#include "worker/client/grant_ahead.h"
#include "worker/client/held_connection.h"
#include "worker/life/heartbeat_pace.h"
#include "worker/life/redial_pace.h"

namespace lodestar::client {
namespace {

// Maximum number of times that servers may refer the worker to another server in one attempt.
constexpr int kMaxHops = 3;
// Number of attempts to tell the coordinator that this worker leaves. Each may use a new
// connection.
constexpr int kFarewells = 3;
// Maximum timeout of a call on a slow path.
constexpr absl::Duration kLongestTimeout = absl::Minutes(1);
// Limits of the time that NextGrant() waits for the answer to AskAhead() after the servers have
// acknowledged the contribution. The coordinator usually grants at the last acknowledgement. If it
// does not, it waits for other workers or for a server's report, and NextGrant() sends its own
// request.
constexpr absl::Duration kLeastPatienceAhead = absl::Milliseconds(50);
constexpr absl::Duration kMostPatienceAhead = absl::Seconds(1);

class ClusterSession final : public CoordinatorLink {
 public:
  explicit ClusterSession(ClusterSessionConfig config)
      : config_(std::move(config)),
        tracer_(config_.name, config_.request_process, &Clock::Real()),
        addresses_(config_.coordinator),
        coordinator_(addresses_.current()) {
    Connect();
  }

  ~ClusterSession() override { StopHeartbeats(); }

  absl::StatusOr<messages::Registration> Register(
      const std::optional<messages::OfferedLayout>& offered,
      const messages::ProcessHistory& process) override;
  absl::Status Join(const std::string& layout_hash, const messages::DatasetInfo& dataset) override;
  void AskAhead(const messages::RoundReport& report) override;
  absl::StatusOr<messages::Grant> NextGrant(const std::optional<messages::RoundReport>& report,
                                            bool leaving, bool without_samples) override;
  absl::StatusOr<messages::Grant> ExtendGrant(const messages::Grant& held) override;
  absl::Status Leave(const std::string& reason,
                     const std::optional<messages::RoundReport>& report) override;
  void StartHeartbeats(absl::Duration interval, HeartbeatCalls calls) override;
  void StopHeartbeats() override;
  void Cancel() override {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (call_in_progress_ != nullptr) call_in_progress_->TryCancel();
    if (ahead_ != nullptr) ahead_->Cancel();
  }
  void Rearm() override {
    absl::MutexLock lock(&mutex_);
    cancelled_ = false;
  }

 private:
  void Connect() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes later calls go to `coordinator`. Ends a call to another coordinator that is in progress.
  void GoTo(const std::string& coordinator) ABSL_LOCKS_EXCLUDED(mutex_);
  // Repeats `attempt` until the coordinator has answered. Tries these addresses in order:
  // - coordinator_, the present one;
  // - the coordinator's address that a server returns;
  // - the addresses of the user's list.
  // Returns the coordinator's answer. If there is none, returns an error with the results of all
  // addresses.
  absl::Status Seek(const std::function<absl::Status()>& attempt);
  void OpenChannelLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens another channel, and ends the call that is in progress.
  void ReplaceChannelLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the stub for a call. A copy is used because stub_ may be replaced during the call.
  std::shared_ptr<v1::ClusterService::Stub> stub() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return stub_;
  }
  // Must be called when the connection has not answered for too long. Ends the call in progress,
  // and makes later calls use another connection.
  void ReplaceSilentChannel() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes one attempt to register with coordinator_.
  absl::StatusOr<messages::Registration> TryRegister(
      const std::optional<messages::OfferedLayout>& offered,
      const messages::ProcessHistory& process);
  // Makes a call that Cancel() can end. `method` is the method of the stub. `name` is its name for
  // the log, and `round` the round that the call is about.
  template <typename Method, typename Request, typename Reply>
  absl::Status Call(absl::string_view name, Method method, const Request& request,
                    absl::Duration timeout, Reply* reply, std::optional<Round> round = {});
  // If the coordinator does not know an address at which every worker can reach it, replaces the
  // address of shard 0 by the address of this session's calls. `Reply` is RegisterReply or
  // HeartbeatReply.
  template <typename Reply>
  void KeepDialledAddress(Reply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!reply.keeps_dialled_address() || reply.servers().empty()) return;
    reply.mutable_servers(0)->set_address(coordinator_);
  }
  v1::GrantRequest GrantRequestOf(const std::optional<messages::RoundReport>& report) const;
  // Waits a short time for the answer to AskAhead(), if its report was about `round`.
  absl::StatusOr<messages::Grant> AwaitAhead(Round round) ABSL_LOCKS_EXCLUDED(mutex_);
  // Replaces ahead_ by `ahead`, and ends the call of the old one. Null means no new call.
  void SetAhead(std::shared_ptr<GrantAhead> ahead) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns a timeout of at least `least`. It is longer if answers take long.
  absl::Duration TimeoutOf(absl::Duration least) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return path_.Patience(least, kLongestTimeout);
  }
  // Returns the result of a call that had `timeout`. DeadlineExceeded becomes Unavailable. The
  // messages of Unavailable and Unimplemented name the coordinator.
  absl::Status Outcome(const grpc::Status& status, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns `answer`, the result of FromProto() for the reply to `call`. If it is an error, the
  // reply was damaged or comes from another release. So the next attempt uses a new connection. If
  // the error comes again, it was not the connection.
  template <typename T>
  absl::StatusOr<T> Understood(absl::string_view call, absl::StatusOr<T> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RunHeartbeats(absl::Duration interval, const HeartbeatCalls& calls);
  // Starts a StayConnected call on the present connection. The coordinator holds this call open.
  std::unique_ptr<HeldConnection> Hold() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until `until`, or until the StayConnected call ends. Returns false once no more
  // heartbeats have to be sent.
  bool AwaitHeartbeat(absl::Time until) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the status of the StayConnected call, and clears it. Not set means that the call has
  // not ended.
  std::optional<absl::Status> TakeHeldEnd() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(held_end_, std::nullopt);
  }
  // Sends a heartbeat and returns the answer. Errors: DeadlineExceeded if there was no answer in
  // `patience`.
  absl::StatusOr<messages::HeartbeatAnswer> SendHeartbeat(messages::HeartbeatCall call,
                                                          absl::Duration patience);
  // Returns a request that says which worker calls. Requires: Register() has succeeded.
  template <typename Request>
  Request Identified() const {
    Request request;
    wire::SetLife(*life_, &request);
    return request;
  }
  // Adds the secret of this life, which proves which worker calls.
  void Prove(grpc::ClientContext& context) const {
    if (!life_secret_.empty()) context.AddMetadata(wire::kLifeSecretKey, life_secret_);
  }

  const ClusterSessionConfig config_;
  CallTracer tracer_;
  // Used only by the thread that calls Seek(). While heartbeats run, that is their thread.
  net::AddressList addresses_;
  std::optional<messages::WorkerLife> life_;
  // The secret of the present life. Empty before the first life, and if the coordinator uses no
  // secrets.
  std::string life_secret_;
  std::thread heartbeats_;

  absl::Mutex mutex_;
  // host:port of the coordinator, to which this session sends its calls.
  std::string coordinator_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<v1::ClusterService::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* call_in_progress_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The early request of AskAhead(). Null means that there is none.
  std::shared_ptr<GrantAhead> ahead_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* heartbeat_in_progress_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // True if answers were damaged and the connection may be the reason.
  bool is_suspect_ ABSL_GUARDED_BY(mutex_) = false;
  // True if the call in progress was cancelled because its connection was silent for too long.
  bool is_silent_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_heartbeats_ ABSL_GUARDED_BY(mutex_) = false;
  // The status of the StayConnected call. Not set means that the call has not ended.
  std::optional<absl::Status> held_end_ ABSL_GUARDED_BY(mutex_);
  // Round-trip times of calls that the coordinator answers at once.
  net::RoundTripTime path_ ABSL_GUARDED_BY(mutex_);
};

std::chrono::system_clock::time_point Deadline(absl::Duration timeout) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout);
}

// If the channel has no connection, replaces it by a new channel, which tries to connect at once.
// The old channel would find a restarted server only after some 10 s.
void ClusterSession::Connect() {
  absl::MutexLock lock(&mutex_);
  const bool is_suspect = std::exchange(is_suspect_, false);
  if (channel_ != nullptr && !is_suspect &&
      channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    return;
  }
  OpenChannelLocked();
}

void ClusterSession::OpenChannelLocked() {
  channel_ = grpc::CreateCustomChannel(coordinator_, config_.security.channel_credentials(),
                                       wire::ControlChannelArguments());
  stub_ = v1::ClusterService::NewStub(channel_);
}

void ClusterSession::ReplaceSilentChannel() {
  absl::MutexLock lock(&mutex_);
  ReplaceChannelLocked();
}

void ClusterSession::ReplaceChannelLocked() {
  OpenChannelLocked();
  if (ahead_ != nullptr) ahead_->Cancel();
  if (call_in_progress_ == nullptr) return;
  is_silent_ = true;
  call_in_progress_->TryCancel();
}

void ClusterSession::GoTo(const std::string& coordinator) {
  absl::MutexLock lock(&mutex_);
  if (coordinator_ == coordinator) return;
  coordinator_ = coordinator;
  ReplaceChannelLocked();
}

template <typename Method, typename Request, typename Reply>
absl::Status ClusterSession::Call(absl::string_view name, Method method, const Request& request,
                                  absl::Duration timeout, Reply* reply,
                                  std::optional<Round> round) {
  grpc::ClientContext context;
  messages::CallFacts facts = tracer_.Begin(name, context);
  facts.life = life_;
  facts.round = round;
  Prove(context);
  context.set_deadline(Deadline(timeout));
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_)
      return absl::CancelledError("the worker is stopping, or its incarnation is over");
    call_in_progress_ = &context;
    is_silent_ = false;
  }
  const grpc::Status status = (stub().get()->*method)(&context, request, reply);
  if constexpr (std::is_same_v<Reply, v1::Grant>) {
    if (status.ok() && HasRound(*reply)) facts.round = Round(reply->round());
  }
  tracer_.End(facts, context, wire::FromGrpcStatus(status));
  absl::MutexLock lock(&mutex_);
  call_in_progress_ = nullptr;
  if (cancelled_) return absl::CancelledError("the worker is stopping, or its incarnation is over");
  if (is_silent_ && status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError(
        absl::StrCat("coordinator ", coordinator_, " does not answer on this connection any more"));
  }
  return Outcome(status, timeout);
}

absl::Status ClusterSession::Outcome(const grpc::Status& status, absl::Duration timeout) {
  // If there is no connection, the error was made on this side and does not come from a server.
  const bool is_connected = channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat(
        "coordinator ", coordinator_, " did not answer within ", absl::FormatDuration(timeout),
        is_connected ? ", but the connection was not closed. Its machine or the network is gone, "
                       "its process hangs, or the network drops large packets. Run `lodestar "
                       "doctor` of the Python package to find out"
                     : ""));
  }
  const absl::Status native = wire::FromGrpcStatus(status);
  if (RemedyFor(native) == Remedy::kReconnect) is_suspect_ = true;
  if (!absl::IsUnavailable(native) && !absl::IsUnimplemented(native)) return native;
  absl::Status named(native.code(),
                     absl::StrCat("coordinator ", coordinator_, ": ", native.message()));
  return is_connected ? WithAnswered(std::move(named)) : named;
}

template <typename T>
absl::StatusOr<T> ClusterSession::Understood(absl::string_view call, absl::StatusOr<T> answer) {
  if (answer.ok()) return answer;
  absl::MutexLock lock(&mutex_);
  is_suspect_ = true;
  return absl::UnimplementedError(absl::StrCat(
      "coordinator ", coordinator_, ": its answer to ", call,
      " was damaged on the network, or comes from another release: ", answer.status().message(),
      "; if this repeats, use the same release on both sides"));
}

absl::Status ClusterSession::Seek(const std::function<absl::Status()>& attempt) {
  net::AddressSearch search(&addresses_);
  bool goes_on = false;
  do {
    Connect();
    absl::Status answer = attempt();
    for (int hop = 0; hop < kMaxHops; ++hop) {
      const std::optional<std::string> address = CoordinatorOf(answer);
      if (!address.has_value()) break;
      logging::LogInfo("{}; this worker connects to that server", answer.message());
      GoTo(*address);
      Connect();
      answer = attempt();
    }
    goes_on = search.GoesOn(answer);
    // After an attempt without an answer, the next attempt begins with an address of the user's
    // list.
    if (!answer.ok()) GoTo(addresses_.current());
  } while (goes_on);
  return search.Outcome();
}

absl::StatusOr<messages::Registration> ClusterSession::Register(
    const std::optional<messages::OfferedLayout>& offered,
    const messages::ProcessHistory& process) {
  SetAhead(nullptr);
  absl::StatusOr<messages::Registration> registration = absl::UnknownError("");
  RETURN_IF_ERROR(Seek([&] {
    registration = TryRegister(offered, process);
    return registration.status();
  }));
  return registration;
}

absl::StatusOr<messages::Registration> ClusterSession::TryRegister(
    const std::optional<messages::OfferedLayout>& offered,
    const messages::ProcessHistory& process) {
  messages::RegisterCall call;
  call.name = config_.name;
  call.instance_id = config_.instance_id;
  call.device = config_.device;
  if (offered.has_value()) {
    call.layout = offered->layout;
    call.adopts_order = offered->adopts_order;
    call.frozen_hash = offered->frozen_hash;
  }
  call.proposed = config_.proposed;
  call.process = process;
  call.encodings.clear();
  for (const params::Encoding encoding : params::kAllEncodings)
    call.encodings.push_back(encoding.kind());
  v1::RegisterReply reply;
  const absl::Duration timeout =
      TimeoutOf(addresses_.size() > 1 ? config_.search_timeout : config_.call_timeout);
  RETURN_IF_ERROR(
      Call("Register", &v1::ClusterService::Stub::Register, wire::ToProto(call), timeout, &reply));
  {
    absl::MutexLock lock(&mutex_);
    KeepDialledAddress(reply);
  }
  ASSIGN_OR_RETURN(messages::Registration registration,
                   Understood("Register", wire::FromProto(reply)));
  life_ = registration.life;
  life_secret_ = registration.life_secret;
  return registration;
}

absl::Status ClusterSession::Join(const std::string& layout_hash,
                                  const messages::DatasetInfo& dataset) {
  auto request = Identified<v1::JoinRequest>();
  request.set_layout_hash(layout_hash);
  *request.mutable_dataset() = wire::ToProto(dataset);
  v1::JoinReply reply;
  return Call("Join", &v1::ClusterService::Stub::Join, request, TimeoutOf(config_.call_timeout),
              &reply);
}

v1::GrantRequest ClusterSession::GrantRequestOf(
    const std::optional<messages::RoundReport>& report) const {
  auto request = Identified<v1::GrantRequest>();
  request.set_hold_ms(absl::ToInt64Milliseconds(config_.grant_hold));
  if (report.has_value()) *request.mutable_report() = wire::ToProto(*report);
  return request;
}

void ClusterSession::AskAhead(const messages::RoundReport& report) {
  v1::GrantRequest request = GrantRequestOf(report);
  request.set_ahead(true);
  const absl::Duration timeout = config_.grant_hold + TimeoutOf(config_.call_timeout);
  SetAhead(
      std::make_shared<GrantAhead>(stub(), std::move(request), life_secret_, timeout, &tracer_));
}

void ClusterSession::SetAhead(std::shared_ptr<GrantAhead> ahead) {
  absl::ReleasableMutexLock lock(&mutex_);
  if (cancelled_ && ahead != nullptr) ahead->Cancel();
  const std::shared_ptr<GrantAhead> former = std::exchange(ahead_, std::move(ahead));
  lock.Release();
}

absl::StatusOr<messages::Grant> ClusterSession::AwaitAhead(Round round) {
  std::shared_ptr<GrantAhead> ahead;
  absl::Duration patience;
  {
    absl::MutexLock lock(&mutex_);
    ahead = ahead_;
    patience = path_.Patience(kLeastPatienceAhead, kMostPatienceAhead);
  }
  if (ahead == nullptr || ahead->round() != round)
    return absl::NotFoundError("this worker has not asked for this grant in advance");
  const std::optional<v1::Grant> grant = ahead->Await(patience);
  if (!grant.has_value())
    return absl::UnavailableError(
        "the servers have not answered the early request for a grant yet");
  return Understood("NextGrant", wire::FromProto(*grant));
}

absl::StatusOr<messages::Grant> ClusterSession::NextGrant(
    const std::optional<messages::RoundReport>& report, bool leaving, bool without_samples) {
  if (report.has_value() && !leaving) {
    absl::StatusOr<messages::Grant> grant = AwaitAhead(report->round);
    if (grant.ok()) return grant;
  }
  SetAhead(nullptr);
  v1::GrantRequest request = GrantRequestOf(report);
  request.set_leaving(leaving);
  request.set_without_samples(without_samples);
  v1::Grant grant;
  RETURN_IF_ERROR(Call("NextGrant", &v1::ClusterService::Stub::NextGrant, request,
                       config_.grant_hold + TimeoutOf(config_.call_timeout), &grant,
                       report.has_value() ? std::optional(report->round) : std::nullopt));
  return Understood("NextGrant", wire::FromProto(grant));
}

absl::StatusOr<messages::Grant> ClusterSession::ExtendGrant(const messages::Grant& held) {
  auto request = Identified<v1::GrantRequest>();
  request.set_extends_round(held.round.value());
  v1::Grant reply;
  RETURN_IF_ERROR(Call("NextGrant", &v1::ClusterService::Stub::NextGrant, request,
                       TimeoutOf(config_.call_timeout), &reply, held.round));
  return Understood("NextGrant", wire::FromProto(reply));
}

absl::Status ClusterSession::Leave(const std::string& reason,
                                   const std::optional<messages::RoundReport>& report) {
  if (!life_.has_value()) return absl::OkStatus();
  auto request = Identified<v1::LeaveRequest>();
  request.set_reason(reason);
  if (report.has_value()) *request.mutable_report() = wire::ToProto(*report);
  // Tries several times. If no attempt succeeds, the other workers wait until this worker's lease
  // ends, and the round loses this worker's part.
  const auto deadline = Deadline(config_.leave_timeout);
  grpc::Status status;
  for (int attempt = 0; attempt < kFarewells; ++attempt) {
    if (attempt > 0) Connect();
    grpc::ClientContext context;
    messages::CallFacts facts = tracer_.Begin("Leave", context);
    facts.life = life_;
    if (report.has_value()) facts.round = report->round;
    Prove(context);
    context.set_deadline(deadline);
    context.set_wait_for_ready(report.has_value());
    v1::LeaveReply reply;
    status = stub()->Leave(&context, request, &reply);
    tracer_.End(facts, context, wire::FromGrpcStatus(status));
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
  }
  absl::MutexLock lock(&mutex_);
  return Outcome(status, config_.leave_timeout);
}

void ClusterSession::StartHeartbeats(absl::Duration interval, HeartbeatCalls calls) {
  StopHeartbeats();
  {
    absl::MutexLock lock(&mutex_);
    stop_heartbeats_ = false;
  }
  heartbeats_ =
      std::thread([this, interval, calls = std::move(calls)] { RunHeartbeats(interval, calls); });
}

void ClusterSession::StopHeartbeats() {
  {
    absl::MutexLock lock(&mutex_);
    stop_heartbeats_ = true;
    if (heartbeat_in_progress_ != nullptr) heartbeat_in_progress_->TryCancel();
  }
  if (heartbeats_.joinable()) heartbeats_.join();
}

void ClusterSession::RunHeartbeats(absl::Duration interval, const HeartbeatCalls& calls) {
  Clock& clock = Clock::Real();
  logging::ChangeLogger unreachable;
  life::HeartbeatPace pace(interval, clock.Now());
  life::RedialPace redial;
  bool may_hold = calls.stays_connected;
  // True if the StayConnected call has ended and there is no new connection yet.
  bool is_cut_off = false;
  std::unique_ptr<HeldConnection> held;
  while (true) {
    if (is_cut_off) Connect();
    pace.OnSent(clock.Now());
    absl::StatusOr<messages::HeartbeatAnswer> answer = absl::UnknownError("");
    const auto send = [&] {
      answer = SendHeartbeat(calls.activity(), pace.patience());
      return answer.status();
    };
    const absl::Status status = addresses_.size() > 1 ? Seek(send) : send();
    // The coordinator has ended this life or refuses this worker. So the present step is useless.
    if (absl::IsAborted(status) || absl::IsPermissionDenied(status)) {
      calls.on_lost(status);
      return;
    }
    if (status.ok()) {
      pace.OnAnswered(clock.Now());
      unreachable.Forget("heartbeat");
      if (answer->servers.has_value()) calls.on_moved(*answer->servers);
      if (answer->live_workers.has_value()) calls.on_live_workers(*answer->live_workers);
      calls.on_waiting(answer->waiting_for);
      is_cut_off = false;
      // Heartbeats may use another connection by now. The StayConnected call must use the same one.
      if (may_hold && (held == nullptr || held->stub() != stub())) {
        held.reset();
        TakeHeldEnd();
        held = Hold();
        redial.OnHeld(clock.Now());
      }
    } else if (!absl::IsCancelled(status)) {
      calls.on_unanswered(status);
      unreachable.Log(logging::LogLevel::kWarn, "heartbeat",
                      absl::StrCat("the heartbeat to the coordinator failed: ", status.message()));
      const bool is_silent = absl::IsDeadlineExceeded(status) && pace.OnSilence(clock.Now());
      if (is_silent || RemedyFor(status) == Remedy::kReconnect) ReplaceSilentChannel();
    }
    absl::Time next = pace.next();
    if (is_cut_off) next = std::min(next, clock.Now() + redial.OnFailed(clock.Now()));
    if (!AwaitHeartbeat(next)) return;
    const std::optional<absl::Status> end = TakeHeldEnd();
    if (!end.has_value()) continue;
    held.reset();
    // If the call has ended with OK or with "unknown method", the server does not support
    // StayConnected.
    is_cut_off = absl::IsUnavailable(*end);
    may_hold = is_cut_off || absl::IsResourceExhausted(*end);
    next = is_cut_off ? clock.Now() + redial.OnFailed(clock.Now()) : pace.next();
    if (!absl::IsAborted(*end) && !AwaitHeartbeat(next)) return;
  }
}

std::unique_ptr<HeldConnection> ClusterSession::Hold() {
  return std::make_unique<HeldConnection>(stub(), *life_, life_secret_,
                                          [this](const absl::Status& end) {
                                            absl::MutexLock lock(&mutex_);
                                            held_end_ = end;
                                          });
}

bool ClusterSession::AwaitHeartbeat(absl::Time until) {
  Clock& clock = Clock::Real();
  absl::MutexLock lock(&mutex_);
  const auto is_due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_heartbeats_ || held_end_.has_value();
  };
  clock.Await(mutex_, absl::Condition(&is_due), until - clock.Now());
  return !stop_heartbeats_;
}

absl::StatusOr<messages::HeartbeatAnswer> ClusterSession::SendHeartbeat(
    messages::HeartbeatCall call, absl::Duration patience) {
  call.life = *life_;
  grpc::ClientContext context;
  messages::CallFacts facts = tracer_.Begin("Heartbeat", context);
  facts.life = life_;
  Prove(context);
  context.set_deadline(Deadline(patience));
  v1::HeartbeatReply reply;
  {
    absl::MutexLock lock(&mutex_);
    if (stop_heartbeats_) return absl::CancelledError("the worker has stopped its heartbeats");
    heartbeat_in_progress_ = &context;
  }
  const absl::Time sent = Clock::Real().Now();
  const grpc::Status status = stub()->Heartbeat(&context, wire::ToProto(call), &reply);
  tracer_.End(facts, context, wire::FromGrpcStatus(status));
  absl::MutexLock lock(&mutex_);
  heartbeat_in_progress_ = nullptr;
  if (status.ok()) {
    path_.OnAnswered(Clock::Real().Now() - sent);
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    path_.OnUnanswered(patience);
  }
  const absl::Status outcome = Outcome(status, patience);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(outcome.message());
  }
  RETURN_IF_ERROR(outcome);
  KeepDialledAddress(reply);
  return wire::FromProto(reply);
}

}  // namespace

std::unique_ptr<CoordinatorLink> MakeClusterSession(ClusterSessionConfig config) {
  return std::make_unique<ClusterSession>(std::move(config));
}

}  // namespace lodestar::client
