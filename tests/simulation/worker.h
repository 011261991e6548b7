// SPDX-License-Identifier: Apache-2.0

// SimulatedWorker is one worker process of a simulated cluster. Its life cycle (Lifecycle), its
// heartbeats (HeartbeatPace) and its encodings are the real ones. Its contributions are whole
// numbers, computed from its name, the round and the number of contributions before. So a
// contribution that is lost or counted twice shows in the weights.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/process/version.h"
#include "tests/simulation/server.h"
#include "tests/simulation/transfer.h"
#include "worker/life/heartbeat_pace.h"
#include "worker/life/lifecycle.h"
#include "worker/life/redial_pace.h"

namespace lodestar::simulation {

// Code that computes for a simulated worker, in place of random numbers. Answers come later, in the
// worker's process, or never if that process ends.
class Computing {
 public:
  // Result of a grant. A grant of training also has the weights at its beginning and its end.
  struct Window {
    messages::RoundReport report;
    std::vector<float> start;
    std::vector<float> end;
  };

  virtual ~Computing() = default;
  // Prepares model and data of an incarnation that begins.
  virtual void Prepare(const messages::Registration& registration,
                       std::function<void(const absl::Status&)> done) = 0;
  virtual messages::DatasetInfo data() const = 0;
  virtual void CarryOut(const messages::Grant& grant, std::vector<float> weights,
                        std::function<void(const absl::StatusOr<Window>&)> done) = 0;
};

class SimulatedWorker {
 public:
  struct Config {
    std::string name;
    absl::Duration longest_step = absl::Milliseconds(20);  // maximum time of computing
    std::vector<params::Encoding::Kind> encodings;         // encodings that it knows
    uint32_t wire_version = process::kWireVersion;
    // A client of another make. Its heartbeats do not say what it does, and it does not follow
    // servers to other addresses.
    bool tells_little = false;
    bool asks_ahead = false;  // asks for grants while contributions are on their way
    // Gets more samples for steps, makes steps without samples, and asks when it may not.
    bool extends_grants = false;
    bool gives_weights = false;  // contributions have weights of their own
    bool is_odd = false;         // begins with the opposite of gives_weights
    absl::Duration leave_timeout = life::Lifecycle::Config().leave_timeout;
  };
  // Process and code of a worker that is part of another process.
  struct Host {
    Process* process = nullptr;
    Computing* computing = nullptr;
    std::function<void()> on_exit;
  };

  SimulatedWorker(ClusterContext* cluster, Config config);
  SimulatedWorker(ClusterContext* cluster, Config config, Host host);

  Process& process() { return process_; }
  // Starts the worker. If it has a host, call this once the host's process has begun.
  void Start();
  void Crash(bool with_machine);
  // Tells the coordinator of the process's end, like a pidfd if both are on one machine, which half
  // of the workers are. Requires: the worker is registered.
  void TellCoordinatorOfMyEnd();
  void RequestStop(const life::StopRequest& request = {});
  // Makes the worker stand still for `duration`, before its next push or before its next report.
  // Meanwhile its heartbeats say that it computes or pushes.
  void Hang(absl::Duration duration);
  // Returns true if it stands still now, in an incarnation that has not ended.
  bool is_hanging() const;
  // Damages pushes on their way, for `duration`.
  void DamagePushes(absl::Duration duration);
  // Returns true if the coordinator holds a call of this incarnation, and so learns how its
  // connection ends.
  bool is_held() const { return life_ != nullptr && life_->held_call != nullptr; }
  // Called when a proxy is about to close all connections of the worker.
  void OnProxyRestart(bool is_alone);
  bool has_exited() const { return exit_.has_value(); }
  const absl::Status& exit_status() const { return *exit_; }
  // Returns true if the process has ended because its contribution has a weight and those of others
  // have none, or the other way round.
  bool is_refused_for_weight() const { return is_refused_for_weight_; }
  // If the worker has a host, this must only be called after the host's process has begun for the
  // first time.
  const life::Lifecycle& lifecycle() const { return life_->lifecycle; }

 private:
  // A contribution whose bytes have been made.
  struct Made {
    life::LifeId life;
    messages::Grant grant;
    messages::RoundReport report;
    std::vector<std::vector<PushedBucket>> by_shard;
    std::vector<std::vector<float>> values;  // by bucket, before encoding
    std::vector<Version> base_versions;
  };
  // A request for the next grant, while the contribution to a round is on its way.
  struct Ahead {
    messages::RoundReport report;
    std::shared_ptr<UnaryCall> call = nullptr;
    std::optional<messages::Grant> grant = std::nullopt;  // the grant, once it has come
    bool is_over = false;  // the request has ended, with or without a grant
  };
  struct Life {
    explicit Life(const Config& config)
        : lifecycle(life::Lifecycle::Config{.leave_timeout = config.leave_timeout}) {}

    uint64_t instance_id = 0;
    life::Lifecycle lifecycle;
    int task = 0;  // number of the task; answers to an earlier task are late
    bool calls_are_cancelled = false;
    bool transfers_are_cancelled = false;
    std::shared_ptr<UnaryCall> call;  // call of the task
    std::function<void(const absl::Status&)> call_failed;
    std::shared_ptr<Transfer> transfer;
    PathsOfLife paths;         // paths of the registered incarnation
    uint64_t map_version = 0;  // version of the map that has the addresses in `paths`
    absl::Time wake_at = absl::InfiniteFuture();

    std::optional<messages::Registration> registration;
    std::optional<messages::AcknowledgedReport> acknowledged;
    int heartbeats = 0;  // number of the series of heartbeats
    std::optional<life::HeartbeatPace> pace;
    std::shared_ptr<UnaryCall> heartbeat;
    std::shared_ptr<Stream> held_call;  // the call of StayConnected()
    int connection = 0;                 // number of the connection that calls use
    bool is_cut_off = false;            // a connection was closed, and no call was answered since
    life::RedialPace redial;

    std::optional<messages::Grant> grant;  // the grant that is carried out
    int64_t num_extra_samples = 0;         // samples by which it was extended
    bool without_samples = false;          // the incarnation gets grants without samples
    std::vector<std::optional<Version>> pulled;
    std::vector<std::vector<float>> weights;  // weights by bucket
    // For jobs that defer contributions: the next round for the samples in hand, the incarnation
    // that they belong to, and the samples of their windows, the newest last.
    std::optional<Round> next_round;
    life::LifeId in_hand_of;
    std::deque<int64_t> in_hand;
    absl::Duration pause;      // before the next attempt of a transfer
    std::optional<Made> made;  // made, but not acknowledged
    std::shared_ptr<Ahead> ahead;
    std::optional<Computing::Window> window;  // the window that was computed last
    int64_t num_computed = 0;
    absl::Duration computed_for;  // time of computing in the current round

    absl::Time hangs_until = absl::InfinitePast();
    bool hangs_before_push = false;  // false means before the report
    std::string hangs_as;            // activity in its heartbeats meanwhile
    bool is_hanging = false;

    // State of encodings, if weights travel as changes or contributions are encoded. It belongs to
    // one incarnation of the servers.
    uint64_t server_incarnation = 0;
    std::vector<std::vector<float>> shadow;
    std::vector<std::optional<Version>> held;
    std::vector<std::vector<float>> residual;
  };

  std::string connection() const;
  // Returns the value of RegisterCall::peer.
  std::string peer() const { return absl::StrCat(connection(), "#", life_->connection); }
  // Called when the process has ended. `are_closed` means that its system has closed its
  // connections.
  void EndConnections(bool are_closed);
  // Returns what the cluster knows about the connections of this incarnation, or null before it is
  // registered.
  ClusterContext::Connections* connections();
  void Perform(const life::Lifecycle::Effects& effects);
  void Perform(const life::Lifecycle::Task& task);
  void Perform(const life::Lifecycle::CancelCalls&);
  void Perform(const life::Lifecycle::CancelTransfers&);
  void Perform(const life::Lifecycle::Tell& tell);
  void Perform(const life::Lifecycle::TellWait&) {}
  void PlanWake();

  void Do(const life::Lifecycle::Connect&);
  void Do(const life::Lifecycle::Prepare&);
  void Do(const life::Lifecycle::TryPaths&);
  void Do(const life::Lifecycle::Join&);
  void Do(const life::Lifecycle::AskForGrant& ask);
  void Do(const life::Lifecycle::CarryOut& order);
  void TakeGrant(const life::Lifecycle::AskForGrant& ask,
                 const absl::StatusOr<messages::Grant>& grant);
  void Do(const life::Lifecycle::SayGoodbye& goodbye);
  void Do(const life::Lifecycle::Finish& finish);

  // Makes a call for the current task, which Lifecycle::CancelCalls ends.
  template <typename Answer>
  void CallCoordinator(
      absl::Duration timeout,
      std::function<void(SimulatedServer&, const SimulatedServer::Reply<Answer>&)> serve,
      std::function<void(const absl::StatusOr<Answer>&)> done);

  void StartHeartbeats();
  void StopHeartbeats();
  void SendHeartbeat(int series);
  void StayConnected();
  void OnHeartbeat(int series, const absl::StatusOr<messages::HeartbeatAnswer>& answer);

  absl::Time now() { return process_.world().Now(); }
  life::LifeId life_id() const;
  const job::JobSpec& job() const { return cluster_->coordinator.job; }
  void BeginPull();
  void BeginPush();
  void PullMissing();
  void OnBucket(const DeliveredBucket& delivered);
  void Compute();
  // Returns true if the worker may ask for more samples, or for grants without samples.
  bool MayExtend() const;
  // Gets more samples for the grant a few times, or not at all.
  void MaybeExtend();
  void Extend();
  // Asks for more samples of the round, and does not wait for the answer.
  void AskForMoreInVain(Round round);
  // Returns the weight of the contribution that is being made. Not set means its samples.
  std::optional<int64_t> Weight() const;
  void ContributeOrEvaluate();
  // Continues at once. If the worker hangs, continues once it does not hang any more or its
  // incarnation is over.
  void GoOn(bool before_push, std::function<void()> then);
  // Returns the report of the current round, without the numbers of its contribution.
  messages::RoundReport EvaluationReport() const;
  std::vector<float> AllWeights() const;
  void MakeContribution();
  // Returns the values before encoding. If no real code computes, `numbers` makes random values.
  std::vector<float> ValuesOf(const params::Bucket& bucket, messages::ContributionKind kind,
                              Chance& numbers) const;
  // Decides which samples are contributed now and which stay in hand, for jobs that defer
  // contributions.
  void TakeInHand(Made& made, shard::ContributionKey& key);
  // Returns the buckets that the round exchanges.
  std::vector<uint32_t> DueIn(Round round) const;
  void PushMade();
  void AskAhead(const messages::RoundReport& report);
  void EndAhead();
  // Waits until `deadline` for the grant that was asked for ahead, and otherwise asks again.
  void AwaitAhead(const life::Lifecycle::AskForGrant& ask, absl::Time deadline);
  void Ask(const life::Lifecycle::AskForGrant& ask);
  void OnDelivered(const client::PushResult& result);
  // Makes the attempt again after a while, if that may help.
  void TryAgain(const absl::Status& status, void (SimulatedWorker::*attempt)());
  void EndRound(const absl::StatusOr<messages::RoundReport>& report);
  void Exit(const absl::Status& status);

  ClusterContext* const cluster_;
  const Config config_;
  const Host host_;
  std::unique_ptr<Process> own_process_;  // null means that the process is the host's
  Process& process_;
  std::unique_ptr<Life> life_;
  std::optional<absl::Status> exit_;
  bool is_odd_;  // See Config.
  bool is_refused_for_weight_ = false;
  absl::Time pushes_are_damaged_until_ = absl::InfinitePast();
};

}  // namespace lodestar::simulation
