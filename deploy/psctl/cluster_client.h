// SPDX-License-Identifier: Apache-2.0

// ClusterClient makes calls of StatusService and AdminService. The calls block, have deadlines, and
// return errors written for operators. An error says whether the server is not there, or accepts
// connections but does not answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"
#include "common/net/address_list.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/log_convert.h"
#include "proto/status_service.grpc.pb.h"
#include "proto/transport_security.h"

namespace lodestar::psctl {

class ClusterClient {
 public:
  // The calls go to the first of `servers` that answers as a ps_server. If that server is not the
  // coordinator, it refers the calls to the coordinator.
  ClusterClient(net::AddressList servers, wire::TransportSecurity security);
  // Returns another client with the same servers and no connection yet.
  ClusterClient Anew() const {
    ClusterClient other(servers_, security_);
    other.refusal_ = refusal_;
    other.silent_since_ = silent_since_;
    other.stop_ = stop_;
    return other;
  }
  // Returns why a server has refused the client's certificate. Clients that Anew() makes share this
  // text. Empty means that no server has refused it.
  const std::string& refusal() const { return *refusal_; }

  // Makes GetStatus(), GetHistory(), WatchStatus(), Checkpoint(), Export() and Stop() end with
  // Cancelled once `stop` is requested. Clients that Anew() makes from now on have the same `stop`.
  void StopWith(std::stop_token stop) { stop_ = std::move(stop); }

  absl::StatusOr<v1::ClusterStatus> GetStatus();
  // Calls `show` for each status until it returns false or the server ends the stream.
  absl::Status WatchStatus(absl::Duration interval,
                           const std::function<bool(const v1::ClusterStatus&)>& show);
  // See StatusService. Errors also: InvalidArgument (the answer is not a valid history).
  absl::StatusOr<history::RunHistory> GetHistory(const v1::HistoryRequest& request);
  // Returns the newest lines of the server's log that match `query`. `log_id` is the id of the log
  // to which the line number `query.after` belongs. An empty `log_id` means that no log was read
  // before. See AdminService.
  absl::StatusOr<wire::LogPage> ReadLog(const logging::LogQuery& query, const std::string& log_id);
  // Function that is called with the cluster's status about once a second while a call waits for
  // its answer.
  using Meanwhile = std::function<void(const v1::ClusterStatus&)>;
  // Blocks until the checkpoint is saved or has failed.
  absl::StatusOr<v1::CheckpointReply> Checkpoint(const Meanwhile& meanwhile);
  // Receives the weights as a safetensors file, and calls `take` for each part of it, in order and
  // on another thread. Ends when the file is complete or `take` returns false. Returns what was
  // exported.
  absl::StatusOr<v1::ExportSource> Export(absl::FunctionRef<bool(absl::string_view)> take,
                                          const Meanwhile& meanwhile);
  // See AdminService.
  absl::Status Pause(const std::string& reason);
  absl::Status Resume();
  absl::StatusOr<v1::SetLearningRateReply> SetLearningRate(double learning_rate);
  // Evicts the worker. With `with_certificate`, the server evicts all names that the worker's
  // certificate has used. Errors also: Unimplemented (the server is older and has evicted only the
  // one name).
  absl::Status Evict(const std::string& worker_name, const std::string& reason,
                     bool with_certificate);
  absl::StatusOr<v1::DashboardReply> GetDashboard();
  absl::Status Readmit(const std::string& worker_name);
  // Rolls the job back to the newest checkpoint of at most `round` rounds. Blocks until the
  // rollback is on disk, so that it survives a restart of any server.
  absl::StatusOr<v1::RollBackReply> RollBack(int64_t round, const std::string& reason);
  // Returns what RollBack() would return, with the same errors. Changes nothing.
  absl::StatusOr<v1::RollBackReply> CheckRollBack(int64_t round);
  // Blocks until the job is over.
  absl::StatusOr<v1::StopReply> Stop(const std::string& reason, const Meanwhile& meanwhile);

  // See AuthorityService.
  absl::StatusOr<v1::CreateTokenReply> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensReply> ListTokens();
  absl::Status RevokeToken(const std::string& id);
  absl::StatusOr<v1::ListIdentitiesReply> ListIdentities();
  absl::StatusOr<v1::RevokeReply> Revoke(const std::string& name, bool with_tokens);

  // Returns the address of the server that has answered last.
  const std::string& server() const { return server_; }

 private:
  void Connect(const std::string& server);
  // Connects to the first of several servers that answers. Call() uses this, because a call that
  // may have had an effect must not be tried at a second address. If there is only one address,
  // does nothing.
  absl::Status FindServer();
  // A function that starts a call, and arranges that `done` runs when the call ends.
  using Begin =
      absl::FunctionRef<void(grpc::ClientContext*, std::function<void(grpc::Status)> done)>;
  grpc::Status CallAndWatch(Begin begin, const Meanwhile& meanwhile);
  absl::StatusOr<v1::RollBackReply> RollBack(const v1::RollBackRequest& request);
  // Makes a call with one request and one reply. `stub` is the member that holds the stub of the
  // call's service.
  template <typename Stub, typename Request, typename Reply>
  absl::Status CallUnary(std::unique_ptr<Stub> ClusterClient::*stub,
                         grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                         const Request& request, Reply& reply);
  // Makes the call. If the server refers it to the coordinator, makes the call again there.
  absl::Status Call(absl::FunctionRef<grpc::Status()> call);
  // Returns the error as "ps_server at HOST:PORT: ...". If no server has answered, the text says
  // what to check. `asked_at` is the time when the call began, or when the server last answered
  // during the call.
  absl::Status Explain(const grpc::Status& status, absl::Time asked_at) const;

  std::stop_token stop_;
  net::AddressList servers_;
  wire::TransportSecurity security_;
  std::string server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::StatusService::Stub> status_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::AuthorityService::Stub> authority_;
  std::shared_ptr<std::string> refusal_ = std::make_shared<std::string>();
  // Since when the server has accepted connections but not answered, in microseconds since 1970.
  // Clients that Anew() makes share this time. kAnswers means that the last call was answered.
  static constexpr int64_t kAnswers = std::numeric_limits<int64_t>::max();
  std::shared_ptr<std::atomic<int64_t>> silent_since_ =
      std::make_shared<std::atomic<int64_t>>(kAnswers);
  absl::Time asked_at_;  // see Explain()
};

}  // namespace lodestar::psctl
