// The other end of AttachShard: keeps the server of a shard above 0 attached to the coordinator,
// hands its commands to the ShardHost and reports back. Reconnects by itself with back-off.
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
    AddressList coordinator;
    wire::TransportSecurity security = {};
    int shard = 1;
    int num_shards = 2;
    absl::Duration stats_interval = absl::Seconds(1);
    // The coordinator answers every one of these on the stream of commands: where it has not for so
    // many, and longer than answers usually take, a call or an answer was lost on the way, and
    // another stream is opened, over a connection of its own.
    int max_unanswered = 5;
    absl::Duration longest_last_save_call = LastSaveCalls::kLongestCall;
  };
  struct Deps {
    std::function<status::ShardReading()> read_stats;
    // The coordinator has told the servers to exit (OK), or refuses this one for good.
    std::function<void(const absl::Status&)> on_stop;
    // Whether this process still holds the folder of its journal. The agent asks before each
    // attachment, and tries again later if the answer is not OK.
    std::function<absl::Status()> confirm_folder = [] { return absl::OkStatus(); };
  };

  // Blocks until a server serves at one of the addresses. Errors: Cancelled once interrupted.
  static absl::Status AwaitCoordinator(const AddressList& coordinator,
                                       const wire::TransportSecurity& security,
                                       const std::function<bool()>& is_interrupted);

  ShardAgent(Config config, Deps deps);
  ~ShardAgent() override;

  // `host` outlives the agent's threads, which end in Stop(). `address` is where workers reach this
  // server.
  void Start(host::ShardHost* host, const std::string& address);
  // This server was told to stop: asks the coordinator for the last checkpoint and blocks until it
  // is published. While the connection is cut it waits for the next one, if there is anything to
  // save. Errors: those of the coordinator's outcome; DeadlineExceeded or DataLoss after
  // `patience`; Unavailable if the coordinator was not there for all of it, and Aborted if it has
  // let go of this server, when nothing of it can be saved; Cancelled once `is_interrupted`, after
  // which only Stop() may be called.
  absl::StatusOr<PublishedCheckpoint> SaveBeforeStop(absl::Duration patience,
                                                     const std::function<bool()>& is_interrupted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Detaches and joins. Repeats are harmless.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Why there is no connection; OK while attached. Aborted if the coordinator has ended it.
  absl::Status connection() const ABSL_LOCKS_EXCLUDED(mutex_);
  // HOST:PORT of the coordinator: under which workers are told to reach it, once it has said so.
  std::string coordinator() const ABSL_LOCKS_EXCLUDED(mutex_);

  void OnEvent(ShardEvent event) override;
  void OnContributed(uint64_t server_incarnation, const WorkerLife& life, Round round) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDropped(absl::string_view text) override;
  void OnNotice(absl::string_view text) override;

 private:
  absl::StatusOr<PublishedCheckpoint> CallForLastSave(const LastSaveCalls::Call& last_save,
                                                      const std::function<bool()>& is_interrupted);
  void RunAttachments();
  void RunStats();
  // Runs until the stream ends; returns how it ended.
  absl::Status RunOneAttachment();
  absl::Status Obey(const v1::ShardCommand& wire);
  // Something has come on the stream; a sign of life is due.
  void NoteMessage() ABSL_LOCKS_EXCLUDED(mutex_);
  void CountUnanswered(int num_intervals) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the stub to call. It is null if the agent is stopped.
  std::shared_ptr<v1::ClusterService::Stub> BeginCall(grpc::ClientContext* context)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what the call has brought. It is Unavailable if the call was on a connection that is
  // given up. After an answer that the connection may have spoiled, the next call opens another
  // one.
  absl::Status EndCall(grpc::ClientContext* context, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The coordinator is not where it was looked for. Whether another place is to be tried at once:
  // not after the last.
  bool LookElsewhere() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the next attempt; false if stopped meanwhile.
  bool PauseBefore(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetConnection(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns how long a call may take: `least`, and more where answers take long.
  absl::Duration DeadlineOf(absl::Duration least) ABSL_LOCKS_EXCLUDED(mutex_);
  v1::ShardReport NewReport() const;
  // Sends from the reporting thread, in order, each report until it is answered: the coordinator
  // would wait for what it does not learn.
  void SendLater(v1::ShardReport report);
  void SendUntilAnswered(const v1::ShardReport& report);
  // Sends once: a worker whose contribution the coordinator does not hear of reports it by itself.
  void SendContributed() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::ShardReportReply> SendNow(const v1::ShardReport& report,
                                               absl::Duration deadline);
  // No call is begun any more, and those under way end.
  void CancelCalls() ABSL_LOCKS_EXCLUDED(mutex_);

  const Config config_;
  const Deps deps_;
  ChangeLogger notices_;
  host::ShardHost* host_ = nullptr;
  std::string address_;
  OutgoingCalls calls_;

  mutable absl::Mutex mutex_;
  AddressList addresses_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  RoundTripTime path_ ABSL_GUARDED_BY(mutex_);  // by the signs of life
  // Replaced, with its connection, while other threads have calls under way.
  std::shared_ptr<v1::ClusterService::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  absl::Status connection_ ABSL_GUARDED_BY(mutex_);
  bool has_stream_ ABSL_GUARDED_BY(mutex_) = false;             // of commands
  int num_unanswered_ ABSL_GUARDED_BY(mutex_) = 0;              // signs of life, on that stream
  std::string advertised_coordinator_ ABSL_GUARDED_BY(mutex_);  // empty: not known yet
  // These are contributions to one life of the servers, not sent yet. If there are any,
  // SendContributed() will be called.
  std::vector<v1::ShardReport::Contributed::Contribution> contributed_ ABSL_GUARDED_BY(mutex_);
  uint64_t contributed_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;

  ThreadPool reports_;
  ThreadPool contributed_sender_;  // what it tells hurries: reports of workers wait for it
  std::thread attachments_;
  size_t num_looked_at_ = 0;  // by that thread, in a row, and in vain
  std::thread stats_;
};

}  // namespace lodestar::rpc
