// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"
#include "deploy/psctl/port_probe.h"
#include "proto/bulk_options.h"
#include "proto/history_convert.h"
#include "proto/peer_texts.h"
#include "proto/status_mapping.h"

namespace lodestar::psctl {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
// Time limit for the answer of each address while FindServer() looks for a server.
constexpr absl::Duration kSearchTimeout = absl::Seconds(5);
// Time limit for calls that may write or verify a checkpoint of a large model.
constexpr absl::Duration kBulkTimeout = absl::Hours(1);
// While a call lasts, psctl asks the server for its status once per kLookInterval. The answer may
// take kLookTimeout.
constexpr absl::Duration kLookInterval = absl::Seconds(1);
constexpr absl::Duration kLookTimeout = absl::Seconds(2);
// A call that fails in less time shows that the server is not silent: it has answered or refused
// the call. A call to a silent server fails later. If the server does not accept the connection,
// the call fails after five seconds.
constexpr absl::Duration kSilence = absl::Seconds(4);
constexpr absl::Duration kProbePatience = absl::Seconds(1);
// Maximum number of times that a server may refer a call to another server's address.
constexpr int kMaxHops = 3;

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

// While a long call waits for its answer, psctl also asks for the cluster's status. If no status
// comes for this long, psctl reports that, and the long call goes on.
constexpr absl::Duration kSilenceMeanwhile = absl::Seconds(8);

// Returns the part of an error message that says that a ps_server accepts connections but does not
// answer. `is_reached` means that this program has a connection to it.
std::string HangsText(bool is_reached, absl::Time since) {
  return absl::StrCat(is_reached ? "is connected, but has not answered since "
                                 : "accepts connections, but has not answered since ",
                      absl::FormatTime("%H:%M:%S", since, absl::LocalTimeZone()),
                      ": its process is stopped or hangs, or its machine is overloaded or swaps. "
                      "Look at the end of its log, and run there ps -o "
                      "pid,stat,wchan:24,etime,args -C ps_server. STAT T means that the process is "
                      "stopped; kill -CONT PID continues it. STAT D means that it waits for a disk",
                      is_reached ? "; the server may still do what this command asked for" : "");
}

// Returns true if the call ended because of the deadline on this side, without an answer from the
// server.
bool IsOwnDeadline(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) && status.message() == "Deadline Exceeded";
}

}  // namespace

ClusterClient::ClusterClient(net::AddressList servers, wire::TransportSecurity security)
    : servers_(std::move(servers)), security_(std::move(security)) {
  Connect(servers_.current());
}

absl::Status ClusterClient::FindServer() {
  if (servers_.size() == 1) return absl::OkStatus();
  net::AddressSearch search(&servers_);
  absl::Status answer;
  do {
    Connect(servers_.current());
    grpc::ClientContext context;
    SetDeadline(kSearchTimeout, &context);
    const std::stop_callback cancel(stop_, [&context] { context.TryCancel(); });
    v1::ClusterStatus reply;
    const absl::Time asked_at = absl::Now();
    answer = Explain(status_->GetStatus(&context, v1::GetStatusRequest(), &reply), asked_at);
  } while (search.GoesOn(answer));
  // Any other answer, such as a refusal or the address of the coordinator, shows that the server is
  // there.
  return net::AddressList::IsElsewhere(answer) ? search.Outcome() : absl::OkStatus();
}

void ClusterClient::Connect(const std::string& server) {
  server_ = server;
  channel_ = grpc::CreateCustomChannel(server_, security_.channel_credentials(),
                                       wire::ControlChannelArguments());
  status_ = v1::StatusService::NewStub(channel_);
  admin_ = v1::AdminService::NewStub(channel_);
  authority_ = v1::AuthorityService::NewStub(channel_);
}

absl::Status ClusterClient::Call(absl::FunctionRef<grpc::Status()> call) {
  RETURN_IF_ERROR(FindServer());
  asked_at_ = absl::Now();
  grpc::Status status = call();
  for (int hop = 0; hop < kMaxHops; ++hop) {
    const std::optional<std::string> coordinator = CoordinatorOf(wire::FromGrpcStatus(status));
    if (!coordinator.has_value()) break;
    std::fprintf(stderr, "psctl: %s: %s\n", server_.c_str(),
                 std::string(wire::FromGrpcStatus(status).message()).c_str());
    Connect(*coordinator);
    asked_at_ = absl::Now();
    status = call();
  }
  return Explain(status, asked_at_);
}

absl::Status ClusterClient::Explain(const grpc::Status& status, absl::Time asked_at) const {
  const absl::Status native = wire::FromGrpcStatus(status);
  if (native.ok()) {
    *silent_since_ = kAnswers;
    return native;
  }
  if (absl::IsUnauthenticated(native)) *refusal_ = std::string(native.message());
  // If there is a connection, the error Unavailable comes from the server, for example because its
  // disk is full.
  const bool is_reached = channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  const bool is_nobody_there = absl::IsUnavailable(native) && !is_reached;
  const absl::Time now = absl::Now();
  if ((is_nobody_there || IsOwnDeadline(native)) && now - asked_at >= kSilence &&
      (is_reached || AcceptsConnections(server_, kProbePatience))) {
    const int64_t since = std::min(silent_since_->load(), absl::ToUnixMicros(asked_at));
    *silent_since_ = since;
    return absl::Status(native.code(),
                        absl::StrCat("ps_server at ", server_, " ",
                                     HangsText(is_reached, absl::FromUnixMicros(since))));
  }
  *silent_since_ = kAnswers;
  return absl::Status(
      native.code(),
      absl::StrCat("ps_server at ", server_, ": ", native.message(),
                   is_nobody_there ? "; is it running, and is --server right?" : ""));
}

template <typename Stub, typename Request, typename Reply>
absl::Status ClusterClient::CallUnary(std::unique_ptr<Stub> ClusterClient::*stub,
                                      grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Reply*),
                                      const Request& request, Reply& reply) {
  RETURN_IF_ERROR(Call([&] {
    grpc::ClientContext context;
    SetDeadline(kCallTimeout, &context);
    const std::stop_callback cancel(stop_, [&context] { context.TryCancel(); });
    return ((this->*stub).get()->*method)(&context, request, &reply);
  }));
  wire::EscapeTexts(&reply);
  return absl::OkStatus();
}

absl::StatusOr<v1::ClusterStatus> ClusterClient::GetStatus() {
  v1::ClusterStatus reply;
  RETURN_IF_ERROR(CallUnary(&ClusterClient::status_, &v1::StatusService::Stub::GetStatus,
                            v1::GetStatusRequest(), reply));
  return reply;
}

absl::StatusOr<history::RunHistory> ClusterClient::GetHistory(const v1::HistoryRequest& request) {
  v1::HistoryReply reply;
  RETURN_IF_ERROR(
      CallUnary(&ClusterClient::status_, &v1::StatusService::Stub::GetHistory, request, reply));
  return wire::HistoryFromProto(reply);
}

absl::StatusOr<wire::LogPage> ClusterClient::ReadLog(const logging::LogQuery& query,
                                                     const std::string& log_id) {
  v1::ReadLogReply reply;
  RETURN_IF_ERROR(CallUnary(&ClusterClient::admin_, &v1::AdminService::Stub::ReadLog,
                            wire::ToProto(query, log_id), reply));
  return wire::FromProto(reply);
}

absl::Status ClusterClient::WatchStatus(absl::Duration interval,
                                        const std::function<bool(const v1::ClusterStatus&)>& show) {
  v1::WatchStatusRequest request;
  request.set_interval_ms(absl::ToInt64Milliseconds(interval));
  return Call([&] {
    grpc::ClientContext context;
    const std::stop_callback cancel(stop_, [&context] { context.TryCancel(); });
    const auto reader = status_->WatchStatus(&context, request);
    v1::ClusterStatus status;
    while (reader->Read(&status)) {
      asked_at_ = absl::Now();
      *silent_since_ = kAnswers;
      wire::EscapeTexts(&status);
      if (show(status)) continue;
      context.TryCancel();
      reader->Finish();
      return grpc::Status::OK;
    }
    return reader->Finish();
  });
}

grpc::Status ClusterClient::CallAndWatch(Begin begin, const Meanwhile& meanwhile) {
  grpc::ClientContext context;
  SetDeadline(kBulkTimeout, &context);
  const std::stop_callback cancel(stop_, [&context] { context.TryCancel(); });
  absl::Notification is_over;
  grpc::Status outcome;
  begin(&context, [&](grpc::Status status) {
    outcome = std::move(status);
    is_over.Notify();
  });
  absl::Time answered_at = absl::Now();
  bool is_silence_told = false;
  while (!is_over.WaitForNotificationWithTimeout(kLookInterval)) {
    grpc::ClientContext look;
    SetDeadline(kLookTimeout, &look);
    const std::stop_callback cancel_look(stop_, [&look] { look.TryCancel(); });
    v1::ClusterStatus cluster;
    const grpc::Status seen = status_->GetStatus(&look, v1::GetStatusRequest(), &cluster);
    if (!seen.ok() && absl::Now() - answered_at >= kSilenceMeanwhile &&
        !is_over.HasBeenNotified() && !std::exchange(is_silence_told, true)) {
      std::fprintf(stderr, "psctl: %s; psctl keeps waiting\n",
                   std::string(Explain(seen, answered_at).message()).c_str());
    }
    if (!seen.ok()) continue;
    answered_at = absl::Now();
    is_silence_told = false;
    wire::EscapeTexts(&cluster);
    meanwhile(cluster);
  }
  return outcome;
}

absl::StatusOr<v1::CheckpointReply> ClusterClient::Checkpoint(const Meanwhile& meanwhile) {
  const v1::CheckpointRequest request;
  v1::CheckpointReply reply;
  RETURN_IF_ERROR(Call([&] {
    return CallAndWatch(
        [&](grpc::ClientContext* context, std::function<void(grpc::Status)> done) {
          admin_->async()->Checkpoint(context, &request, &reply, std::move(done));
        },
        meanwhile);
  }));
  wire::EscapeTexts(&reply);
  return reply;
}

absl::StatusOr<v1::ExportSource> ClusterClient::Export(
    absl::FunctionRef<bool(absl::string_view)> take, const Meanwhile& meanwhile) {
  v1::ExportSource source;
  const auto read = [&](grpc::ClientContext* context) {
    const auto reader = admin_->Export(context, v1::ExportRequest());
    v1::ExportChunk chunk;
    while (reader->Read(&chunk)) {
      if (chunk.has_source()) source = chunk.source();
      if (take(chunk.data())) continue;
      context->TryCancel();
      reader->Finish();
      return grpc::Status::OK;
    }
    return reader->Finish();
  };
  RETURN_IF_ERROR(Call([&] {
    std::thread reading;
    const grpc::Status status = CallAndWatch(
        [&](grpc::ClientContext* context, std::function<void(grpc::Status)> done) {
          reading = std::thread([&read, context, done = std::move(done)] { done(read(context)); });
        },
        meanwhile);
    reading.join();
    return status;
  }));
  wire::EscapeTexts(&source);
  return source;
}

absl::StatusOr<v1::StopReply> ClusterClient::Stop(const std::string& reason,
                                                  const Meanwhile& meanwhile) {
  v1::StopRequest request;
  request.set_reason(reason);
  v1::StopReply reply;
  RETURN_IF_ERROR(Call([&] {
    return CallAndWatch(
        [&](grpc::ClientContext* context, std::function<void(grpc::Status)> done) {
          admin_->async()->Stop(context, &request, &reply, std::move(done));
        },
        meanwhile);
  }));
  wire::EscapeTexts(&reply);
  return reply;
}

absl::Status ClusterClient::Pause(const std::string& reason) {
  v1::PauseRequest request;
  request.set_reason(reason);
  v1::PauseReply reply;
  return CallUnary(&ClusterClient::admin_, &v1::AdminService::Stub::Pause, request, reply);
}

absl::Status ClusterClient::Resume() {
  v1::ResumeReply reply;
  return CallUnary(&ClusterClient::admin_, &v1::AdminService::Stub::Resume, v1::ResumeRequest(),
                   reply);
}

absl::StatusOr<v1::SetLearningRateReply> ClusterClient::SetLearningRate(double learning_rate) {
  v1::SetLearningRateRequest request;
  request.set_learning_rate(learning_rate);
  v1::SetLearningRateReply reply;
  RETURN_IF_ERROR(
      CallUnary(&ClusterClient::admin_, &v1::AdminService::Stub::SetLearningRate, request, reply));
  return reply;
}

absl::Status ClusterClient::Evict(const std::string& worker_name, const std::string& reason,
                                  bool with_certificate) {
  v1::EvictRequest request;
  request.set_worker_name(worker_name);
  request.set_reason(reason);
  request.set_with_certificate(with_certificate);
  v1::EvictReply reply;
  RETURN_IF_ERROR(
      CallUnary(&ClusterClient::admin_, &v1::AdminService::Stub::Evict, request, reply));
  if (!with_certificate || !reply.certificate().empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the server's release does not know --certificate, so only the name '",
                   worker_name, "' is evicted. Upgrade the server, or evict each name"));
}

absl::StatusOr<v1::DashboardReply> ClusterClient::GetDashboard() {
  v1::DashboardReply reply;
  RETURN_IF_ERROR(CallUnary(&ClusterClient::admin_, &v1::AdminService::Stub::GetDashboard,
                            v1::DashboardRequest(), reply));
  return reply;
}

absl::Status ClusterClient::Readmit(const std::string& worker_name) {
  v1::ReadmitRequest request;
  request.set_worker_name(worker_name);
  v1::ReadmitReply reply;
  return CallUnary(&ClusterClient::admin_, &v1::AdminService::Stub::Readmit, request, reply);
}

absl::StatusOr<v1::RollBackReply> ClusterClient::RollBack(int64_t round,
                                                          const std::string& reason) {
  v1::RollBackRequest request;
  request.set_round(round);
  request.set_reason(reason);
  return RollBack(request);
}

absl::StatusOr<v1::RollBackReply> ClusterClient::CheckRollBack(int64_t round) {
  v1::RollBackRequest request;
  request.set_round(round);
  request.set_only_check(true);
  return RollBack(request);
}

absl::StatusOr<v1::RollBackReply> ClusterClient::RollBack(const v1::RollBackRequest& request) {
  v1::RollBackReply reply;
  RETURN_IF_ERROR(Call([&] {
    grpc::ClientContext context;
    SetDeadline(kBulkTimeout, &context);
    return admin_->RollBack(&context, request, &reply);
  }));
  wire::EscapeTexts(&reply);
  return reply;
}

absl::StatusOr<v1::CreateTokenReply> ClusterClient::CreateToken(
    const v1::CreateTokenRequest& request) {
  v1::CreateTokenReply reply;
  RETURN_IF_ERROR(CallUnary(&ClusterClient::authority_, &v1::AuthorityService::Stub::CreateToken,
                            request, reply));
  return reply;
}

absl::StatusOr<v1::ListTokensReply> ClusterClient::ListTokens() {
  v1::ListTokensReply reply;
  RETURN_IF_ERROR(CallUnary(&ClusterClient::authority_, &v1::AuthorityService::Stub::ListTokens,
                            v1::ListTokensRequest(), reply));
  return reply;
}

absl::Status ClusterClient::RevokeToken(const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  v1::RevokeTokenReply reply;
  return CallUnary(&ClusterClient::authority_, &v1::AuthorityService::Stub::RevokeToken, request,
                   reply);
}

absl::StatusOr<v1::ListIdentitiesReply> ClusterClient::ListIdentities() {
  v1::ListIdentitiesReply reply;
  RETURN_IF_ERROR(CallUnary(&ClusterClient::authority_, &v1::AuthorityService::Stub::ListIdentities,
                            v1::ListIdentitiesRequest(), reply));
  return reply;
}

absl::StatusOr<v1::RevokeReply> ClusterClient::Revoke(const std::string& name, bool with_tokens) {
  v1::RevokeRequest request;
  request.set_name(name);
  request.set_with_tokens(with_tokens);
  v1::RevokeReply reply;
  RETURN_IF_ERROR(
      CallUnary(&ClusterClient::authority_, &v1::AuthorityService::Stub::Revoke, request, reply));
  return reply;
}

}  // namespace lodestar::psctl
