// SPDX-License-Identifier: Apache-2.0

// ShardAgent is the server's end of AttachShard. It keeps the server of a shard above 0 attached to
// the coordinator, passes the coordinator's commands to the ShardHost and reports back. It
// reconnects by itself with back-off.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/net/address_list.h"
#include "common/net/round_trip_time.h"
#include "common/runtime/executor.h"
#include "proto/cluster_service.grpc.pb.h"
#include "proto/transport_security.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/host/shard_host.h"
#include "server/rpc/last_save_calls.h"
#include "server/rpc/outgoing_calls.h"
#include "server/status/status_board.h"

namespace lodestar::rpc {

class ShardAgent : public host::ShardReports {
 public:
  struct Config {
    net::AddressList coordinator;
    wire::TransportSecurity security = {};
    int shard = 1;
    int num_shards = 2;
    absl::Duration stats_interval = absl::Seconds(1);
    // Maximum number of signs of life without an answer. The coordinator answers each of them on
    // the stream of commands. If more answers are missing, the agent opens another stream over a
    // new connection. If answers usually take longer, the agent first waits for that long.
    int max_unanswered = 5;
    absl::Duration longest_last_save_call = LastSaveCalls::kLongestCall;
  };
  struct Deps {
    std::function<status::ShardReading()> read_stats;
    // Called with OK when the coordinator has told the servers to exit, or with an error when it
    // refuses this server for good.
    std::function<void(const absl::Status&)> on_stop;
    // Checks that this process still holds the folder of its journal. Called before each
    // attachment. If the result is not OK, the agent tries again later.
    std::function<absl::Status()> confirm_folder = [] { return absl::OkStatus(); };
  };

  // Blocks until a server serves at one of the addresses. Errors: Cancelled (interrupted).
  static absl::Status AwaitCoordinator(const net::AddressList& coordinator,
                                       const wire::TransportSecurity& security,
                                       const std::function<bool()>& is_interrupted);

  ShardAgent(Config config, Deps deps);
  ~ShardAgent() override;

  // Starts the agent. `host` must outlive the agent's threads, which end in Stop(). `address` is
  // where workers reach this server.
  void Start(host::ShardHost* host, const std::string& address);
  // Asks the coordinator for the last checkpoint before this server stops, and blocks until the
  // checkpoint is published. If the connection is cut and this server has something to save, the
  // call waits for the next connection.
  //
  // Errors:
  // - Those of the coordinator.
  // - DeadlineExceeded: the coordinator could not finish the checkpoint within `patience`.
  // - DataLoss: the coordinator did not answer within `patience`.
  // - Unavailable: there was never a connection to ask over, or this server is not connected and
  //   has nothing to save.
  // - Aborted: the coordinator has given up this server, so nothing of it can be saved.
  // - Cancelled: `is_interrupted` has returned true. Then only Stop() may be called.
  absl::StatusOr<checkpoints::PublishedCheckpoint> SaveBeforeStop(
      absl::Duration patience, const std::function<bool()>& is_interrupted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Detaches and joins the threads. Repeats are harmless.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns OK while attached, else the reason why this server is not attached. Aborted means that
  // the coordinator has given up this server.
  absl::Status connection() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns HOST:PORT at which workers reach the coordinator. Empty until the coordinator has sent
  // it.
  std::string coordinator() const ABSL_LOCKS_EXCLUDED(mutex_);

  void OnEvent(shards::ShardEvent event) override;
  void OnContributed(uint64_t server_incarnation, const messages::WorkerLife& life,
                     Round round) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDropped(absl::string_view text) override;
  void OnNotice(absl::string_view text) override;

 private:
  absl::StatusOr<checkpoints::PublishedCheckpoint> CallForLastSave(
      const LastSaveCalls::Call& last_save, const std::function<bool()>& is_interrupted);
  void RunAttachments();
  void RunStats();
  // Runs one attachment until its stream ends. Returns how the stream ended.
  absl::Status RunOneAttachment();
  absl::Status Obey(const v1::ShardCommand& wire);
  // Must be called when a message has come on the stream.
  void NoteMessage() ABSL_LOCKS_EXCLUDED(mutex_);
  void CountUnanswered(int num_intervals) ABSL_LOCKS_EXCLUDED(mutex_);
  // Registers `context`, so that its call can be cancelled, and returns the stub for the call.
  // Returns null if the agent is stopped.
  std::shared_ptr<v1::ClusterService::Stub> BeginCall(grpc::ClientContext* context)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends a call, and returns its status. If the agent itself has interrupted the call, the status
  // is Unavailable. If the status says that the connection may be bad, the next call opens another
  // one.
  absl::Status EndCall(grpc::ClientContext* context, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tries the next address, because the coordinator is not at the current one. Returns false if all
  // addresses have been tried. Then the caller must wait before it tries again.
  bool LookElsewhere() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits before the next attempt. Returns false if stopped meanwhile.
  bool PauseBefore(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetConnection(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the deadline of a call: `least`, or more if answers take long.
  absl::Duration DeadlineOf(absl::Duration least) ABSL_LOCKS_EXCLUDED(mutex_);
  v1::ShardReport NewReport() const;
  // Sends a report from the reporting thread, in order, and repeats it until it is answered. It
  // must not be lost, because the coordinator waits for it.
  void SendLater(v1::ShardReport report);
  void SendUntilAnswered(const v1::ShardReport& report);
  // Sends the contributions once. If the report is lost, the workers report their contributions
  // themselves.
  void SendContributed() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::ShardReportReply> SendNow(v1::ShardReport report, absl::Duration deadline);
  // Ends the calls under way, and lets no other call begin.
  void CancelCalls() ABSL_LOCKS_EXCLUDED(mutex_);

  const Config config_;
  const Deps deps_;
  logging::ChangeLogger notices_;
  host::ShardHost* host_ = nullptr;
  std::string address_;
  OutgoingCalls calls_;

  mutable absl::Mutex mutex_;
  net::AddressList addresses_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  net::RoundTripTime path_ ABSL_GUARDED_BY(mutex_);  // measured by the signs of life
  // The stub and its connection may be replaced while other threads have calls under way.
  std::shared_ptr<v1::ClusterService::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  absl::Status connection_ ABSL_GUARDED_BY(mutex_);
  // True: there is a stream of commands.
  bool has_stream_ ABSL_GUARDED_BY(mutex_) = false;
  // Number of signs of life that were not answered on the present stream of commands.
  int num_unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string advertised_coordinator_ ABSL_GUARDED_BY(mutex_);  // empty: not known yet
  // Contributions that are not reported yet. SendContributed() will report them. All are
  // contributions to the incarnation `contributed_incarnation_` of the servers.
  std::vector<v1::ShardReport::Contributed::Contribution> contributed_ ABSL_GUARDED_BY(mutex_);
  uint64_t contributed_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;

  ThreadPool reports_;
  ThreadPool contributed_sender_;  // sends contributed_, without waiting for reports_
  std::thread attachments_;
  size_t num_looked_at_ = 0;  // failed addresses in a row; used by attachments_ only
  std::thread stats_;
};

}  // namespace lodestar::rpc
