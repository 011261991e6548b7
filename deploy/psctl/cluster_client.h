// Calls of StatusService and AdminService, blocking, with deadlines and errors for people. A server
// that takes connections and does not answer is told from one that is not there.
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

namespace lodestar {

class ClusterClient {
 public:
  // `servers`: the first that answers as a ps_server is asked; one that is not the coordinator
  // sends on to it.
  ClusterClient(AddressList servers, wire::TransportSecurity security);
  // Another one with the same servers, and no connection yet.
  ClusterClient Anew() const {
    ClusterClient other(servers_, security_);
    other.refusal_ = refusal_;
    other.silent_since_ = silent_since_;
    other.stop_ = stop_;
    return other;
  }
  // Why a server has refused the certificate of this client, or of one that was made Anew() from
  // it; empty: none has.
  const std::string& refusal() const { return *refusal_; }

  // From now on GetStatus(), GetHistory(), WatchStatus(), Checkpoint(), Export() and Stop(), also
  // of those that are made Anew(), end with Cancelled once that is told to stop.
  void StopWith(std::stop_token stop) { stop_ = std::move(stop); }

  absl::StatusOr<v1::ClusterStatus> GetStatus();
  // Calls `show` for each status until it returns false or the server ends the stream.
  absl::Status WatchStatus(absl::Duration interval,
                           const std::function<bool(const v1::ClusterStatus&)>& show);
  // See StatusService. Errors also: InvalidArgument (what has come is no history).
  absl::StatusOr<RunHistory> GetHistory(const v1::HistoryRequest& request);
  // The last lines of the server's log that fit `query`. `log_id`: of the page that `query.after`
  // is of; empty: none. See AdminService.
  absl::StatusOr<wire::LogPage> ReadLog(const LogQuery& query, const std::string& log_id);
  // Shown about once a second while the answer takes that long.
  using Meanwhile = std::function<void(const v1::ClusterStatus&)>;
  // Blocks until the checkpoint is there, or has failed.
  absl::StatusOr<v1::CheckpointReply> Checkpoint(const Meanwhile& meanwhile);
  // Calls `take` for each part of a safetensors file with the weights, in order and on another
  // thread, until it returns false or the file is whole. Returns what was exported.
  absl::StatusOr<v1::ExportSource> Export(absl::FunctionRef<bool(absl::string_view)> take,
                                          const Meanwhile& meanwhile);
  // See AdminService.
  absl::Status Pause(const std::string& reason);
  absl::Status Resume();
  absl::StatusOr<v1::SetLearningRateReply> SetLearningRate(double learning_rate);
  // `with_certificate`: with all names of its certificate. Errors also: Unimplemented: the server
  // is older and has evicted the name alone.
  absl::Status Evict(const std::string& worker_name, const std::string& reason,
                     bool with_certificate);
  absl::StatusOr<v1::DashboardReply> GetDashboard();
  absl::Status Readmit(const std::string& worker_name);
  // Back to the newest checkpoint of at most `round` rounds. Blocks until no restart undoes that.
  absl::StatusOr<v1::RollBackReply> RollBack(int64_t round, const std::string& reason);
  // What that would lead to; its errors. Nothing is done.
  absl::StatusOr<v1::RollBackReply> CheckRollBack(int64_t round);
  // Blocks until the job is over.
  absl::StatusOr<v1::StopReply> Stop(const std::string& reason, const Meanwhile& meanwhile);

  // See AuthorityService.
  absl::StatusOr<v1::CreateTokenReply> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensReply> ListTokens();
  absl::Status RevokeToken(const std::string& id);
  absl::StatusOr<v1::ListIdentitiesReply> ListIdentities();
  absl::StatusOr<v1::RevokeReply> Revoke(const std::string& name, bool with_tokens);

  // The address of the server that has answered last.
  const std::string& server() const { return server_; }

 private:
  void Connect(const std::string& server);
  // Finds a server that answers. It is called before a call that may not be made twice, if there
  // are several addresses to choose from.
  absl::Status FindServer();
  // Starts a call that runs the function at its end.
  using Begin =
      absl::FunctionRef<void(grpc::ClientContext*, std::function<void(grpc::Status)> done)>;
  grpc::Status CallAndWatch(Begin begin, const Meanwhile& meanwhile);
  absl::StatusOr<v1::RollBackReply> RollBack(const v1::RollBackRequest& request);
  // Makes a call that takes and returns one message. `stub` is that of the server that is asked in
  // the end.
  template <typename Stub, typename Request, typename Reply>
  absl::Status CallUnary(std::unique_ptr<Stub> ClusterClient::*stub,
                         grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                         const Request& request, Reply& reply);
  // Makes the call, and makes it again with the coordinator if the server sends on to it.
  absl::Status Call(absl::FunctionRef<grpc::Status()> call);
  // Returns the error as "ps_server at HOST:PORT: ...". If no server has answered, the text says
  // what to look at. `asked_at` is when the call began, or was answered last.
  absl::Status Explain(const grpc::Status& status, absl::Time asked_at) const;

  std::stop_token stop_;
  AddressList servers_;
  wire::TransportSecurity security_;
  std::string server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::StatusService::Stub> status_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::AuthorityService::Stub> authority_;
  std::shared_ptr<std::string> refusal_ = std::make_shared<std::string>();
  // Since when a server that is there has not answered, over all calls, in microseconds since 1970.
  // kAnswers means that it has answered.
  static constexpr int64_t kAnswers = std::numeric_limits<int64_t>::max();
  std::shared_ptr<std::atomic<int64_t>> silent_since_ =
      std::make_shared<std::atomic<int64_t>>(kAnswers);
  absl::Time asked_at_;  // see Explain()
};

}  // namespace lodestar
