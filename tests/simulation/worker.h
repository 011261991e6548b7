// SimulatedWorker: one worker process of a simulated cluster. Its life (Lifecycle), its heartbeats
// (HeartbeatPace) and its encodings are the real ones; it computes whole numbers that follow from
// its name, the round and how many it has computed, so that whatever is lost or counted twice
// shows in the weights.
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

// Code that computes for a simulated worker in the place of chance. Answers come later, in the
// worker's process, or never, if that process ends.
class Computing {
 public:
  // What was made of a grant: with which weights it began, and with which it ended, if it was one
  // of training.
  struct Window {
    RoundReport report;
    std::vector<float> start;
    std::vector<float> end;
  };

  virtual ~Computing() = default;
  // Model and data of a life that begins.
  virtual void Prepare(const Registration& registration,
                       std::function<void(const absl::Status&)> done) = 0;
  virtual DatasetInfo data() const = 0;
  virtual void CarryOut(const Grant& grant, std::vector<float> weights,
                        std::function<void(const absl::StatusOr<Window>&)> done) = 0;
};

class SimulatedWorker {
 public:
  struct Config {
    std::string name;
    absl::Duration longest_step = absl::Milliseconds(20);  // computing
    std::vector<Encoding::Kind> encodings;                 // that it knows
    uint32_t wire_version = kWireVersion;
    // A client of another make, whose heartbeats do not say what it does, and which does not follow
    // servers to other addresses.
    bool tells_little = false;
    bool asks_ahead = false;  // for grants, while contributions are on their way
    absl::Duration leave_timeout = life::Lifecycle::Config().leave_timeout;
  };
  // What a worker is part of that has no process of its own.
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
  // As a pidfd does where worker and coordinator are on one machine, which half of them are. Not
  // for workers without a registration.
  void TellCoordinatorOfMyEnd();
  void RequestStop(const life::StopRequest& request = {});
  // For so long it goes on with nothing that it begins, and its heartbeats say that it computes or
  // pushes. It stands still before it has pushed, or before it has reported.
  void Hang(absl::Duration duration);
  // It does so now, in a life that has not ended.
  bool is_hanging() const;
  // Pushes are damaged on their way for a while.
  void DamagePushes(absl::Duration duration);
  // The coordinator holds a call of its life, and hears how its connection ends.
  bool is_held() const { return life_ != nullptr && life_->held_call != nullptr; }
  // A proxy is about to close all of its connections.
  void OnProxyRestart(bool is_alone);
  bool has_exited() const { return exit_.has_value(); }
  const absl::Status& exit_status() const { return *exit_; }
  // If the worker has a host, call this only after its process has begun for the first time.
  const life::Lifecycle& lifecycle() const { return life_->lifecycle; }

 private:
  // A contribution whose bytes are made.
  struct Made {
    life::LifeId life;
    Grant grant;
    RoundReport report;
    std::vector<std::vector<PushedBucket>> by_shard;
    std::vector<std::vector<float>> values;  // before they were encoded, by bucket
    std::vector<Version> base_versions;
  };
  // A request for the grant after a round whose contribution is on its way.
  struct Ahead {
    RoundReport report;
    std::shared_ptr<UnaryCall> call = nullptr;
    std::optional<Grant> grant = std::nullopt;  // that has come
    bool is_over = false;                       // whatever has come of it
  };
  struct Life {
    explicit Life(const Config& config)
        : lifecycle(life::Lifecycle::Config{.leave_timeout = config.leave_timeout}) {}

    uint64_t instance_id = 0;
    life::Lifecycle lifecycle;
    int task = 0;  // counts them: what belongs to an earlier one is late
    bool calls_are_cancelled = false;
    bool transfers_are_cancelled = false;
    std::shared_ptr<UnaryCall> call;  // of the task
    std::function<void(const absl::Status&)> call_failed;
    std::shared_ptr<Transfer> transfer;
    PathsOfLife paths;         // of the life that is registered
    uint64_t map_version = 0;  // whose addresses are in it
    absl::Time wake_at = absl::InfiniteFuture();

    std::optional<Registration> registration;
    std::optional<AcknowledgedReport> acknowledged;
    int heartbeats = 0;  // counts the series of them
    std::optional<life::HeartbeatPace> pace;
    std::shared_ptr<UnaryCall> heartbeat;
    std::shared_ptr<Stream> held_call;  // of StayConnected
    int connection = 0;                 // that calls go over; counts those before it
    bool is_cut_off = false;            // that one was closed, and no call was answered since
    life::RedialPace redial;

    std::optional<Grant> grant;  // that is carried out
    std::vector<std::optional<Version>> pulled;
    std::vector<std::vector<float>> weights;  // by bucket
    // Where contributions are deferred: the round that comes next for what is in hand, whose life
    // that is of, and the samples of the windows that are in it, the newest last.
    std::optional<Round> next_round;
    life::LifeId in_hand_of;
    std::deque<int64_t> in_hand;
    absl::Duration pause;      // before the next attempt of a transfer
    std::optional<Made> made;  // and not acknowledged
    std::shared_ptr<Ahead> ahead;
    std::optional<Computing::Window> window;  // that was computed last
    int64_t num_computed = 0;
    absl::Duration computed_for;  // of the round at hand

    absl::Time hangs_until = absl::InfinitePast();
    bool hangs_before_push = false;  // else before the report
    std::string hangs_as;            // what its heartbeats say
    bool is_hanging = false;

    // Where weights travel as changes, and contributions are encoded: of one life of the servers.
    uint64_t server_incarnation = 0;
    std::vector<std::vector<float>> shadow;
    std::vector<std::optional<Version>> held;
    std::vector<std::vector<float>> residual;
  };

  std::string connection() const;
  // As RegisterCall::peer.
  std::string peer() const { return absl::StrCat(connection(), "#", life_->connection); }
  // The process has ended. `are_closed`: its system has closed its connections.
  void EndConnections(bool are_closed);
  // What the cluster knows of the connections of this life; null before it is registered.
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
  void TakeGrant(const life::Lifecycle::AskForGrant& ask, const absl::StatusOr<Grant>& grant);
  void Do(const life::Lifecycle::SayGoodbye& goodbye);
  void Do(const life::Lifecycle::Finish& finish);

  // A call of the task at hand, which Lifecycle::CancelCalls ends.
  template <typename Answer>
  void CallCoordinator(
      absl::Duration timeout,
      std::function<void(SimulatedServer&, const SimulatedServer::Reply<Answer>&)> serve,
      std::function<void(const absl::StatusOr<Answer>&)> done);

  void StartHeartbeats();
  void StopHeartbeats();
  void SendHeartbeat(int series);
  void StayConnected();
  void OnHeartbeat(int series, const absl::StatusOr<HeartbeatAnswer>& answer);

  absl::Time now() { return process_.world().Now(); }
  life::LifeId life_id() const;
  const JobSpec& job() const { return cluster_->coordinator.job; }
  void BeginPull();
  void BeginPush();
  void PullMissing();
  void OnBucket(const DeliveredBucket& delivered);
  void Compute();
  void ContributeOrEvaluate();
  // Goes on at once, unless it hangs; then once it does not any more, or its life is over.
  void GoOn(bool before_push, std::function<void()> then);
  // Returns the report of the round at hand, without what its contribution is.
  RoundReport EvaluationReport() const;
  std::vector<float> AllWeights() const;
  void MakeContribution();
  // Returns the values before they are encoded. `numbers` makes random ones, if no real code
  // computes.
  std::vector<float> ValuesOf(const Bucket& bucket, ContributionKind kind, Chance& numbers) const;
  // What a round takes of the worker, and what it begins.
  void TakeInHand(Made& made, shard::ContributionKey& key);
  // Buckets that the round exchanges.
  std::vector<uint32_t> DueIn(Round round) const;
  void PushMade();
  void AskAhead(const RoundReport& report);
  void EndAhead();
  // What has been asked ahead, if it comes by `deadline`; else asks once more.
  void AwaitAhead(const life::Lifecycle::AskForGrant& ask, absl::Time deadline);
  void Ask(const life::Lifecycle::AskForGrant& ask);
  void OnDelivered(const client::PushResult& result);
  // Again after a while, if that may help.
  void TryAgain(const absl::Status& status, void (SimulatedWorker::*attempt)());
  void EndRound(const absl::StatusOr<RoundReport>& report);
  void Exit(const absl::Status& status);

  ClusterContext* const cluster_;
  const Config config_;
  const Host host_;
  std::unique_ptr<Process> own_process_;  // null if it is that of the host
  Process& process_;
  std::unique_ptr<Life> life_;
  std::optional<absl::Status> exit_;
  absl::Time pushes_are_damaged_until_ = absl::InfinitePast();
};

}  // namespace lodestar::simulation
