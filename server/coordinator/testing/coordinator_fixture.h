// SPDX-License-Identifier: Apache-2.0

// CoordinatorHarness runs a coordinator in simulated time and records its effects. Its workers obey
// the protocol. For tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/coordinator.h"

namespace lodestar::coordinator {

// The commands that the coordinator has sent. `commands` has one line for each command, in the
// order of sending. The other members have the contents of some kinds of commands.
struct RecordedCommands {
  std::vector<std::string> commands;
  std::vector<shards::AssignCommand> assignments;
  std::vector<sync::RoundPlan> plans;
  std::vector<std::string> save_directories;
  uint64_t stopped_instance = 0;  // instance_id of the last StopCommand; 0 means all
};

struct RecordedTasks {
  std::vector<checkpoints::CheckpointRecord> published;
  std::vector<std::string> discarded;
  std::vector<Round> set_aside;
  std::vector<MarkTask> marked;
  int restores = 0;
  bool accepts_loss = false;  // true if the last restore accepts loss
};

struct RecordedAnnouncements {
  std::vector<RestoredPoint> restored;
  std::vector<job::JobSpec> jobs;
  std::vector<rounds::RoundSummary> rounds;
  std::vector<std::string> events;
  std::vector<std::string> alarms;
};

struct TestWorker {
  std::string name;
  uint64_t instance_id = 0;
  messages::WorkerLife life;
  std::string certificate = "";  // empty means that the worker has none
  std::optional<messages::AcknowledgedReport> acknowledged = {};
  std::optional<absl::Duration> process_age = {};
};

// Returns the config of a sync job with 4 rounds of 6 samples for the model "mlp". A test may
// change the config before it creates the harness.
Coordinator::Config TestConfig(int min_workers = 1);
messages::DatasetInfo TestDataset();
std::string Message(const absl::Status& status);

class CoordinatorHarness {
 public:
  explicit CoordinatorHarness(Coordinator::Config config = TestConfig());

  // Attaches all shards, restores from `choice` and loads all shards.
  void Start(const RestoreChoice& choice = {.source = shards::InitialSource{},
                                            .server_incarnation = 1000});
  void AttachAll();
  void LoadAll();
  // DetachAll() disconnects all servers. AttachAgain() connects them again as the same processes,
  // whose memory is not lost.
  void DetachAll();
  void AttachAgain();
  // Replaces the coordinator by a new process that resumes from the old one's saved state. The
  // clock of the new process is one hour behind. No server is attached then. The test fails if
  // there is no saved state.
  void Restart();
  // Reports that all shards have carried out the newest Save command, and that the checkpoint is
  // published. `alarm` is that of PublishedCheckpoint.
  void FinishSave(const std::string& alarm = "");

  absl::StatusOr<messages::Registration> Register(TestWorker& worker);
  absl::Status Join(const TestWorker& worker, const messages::DatasetInfo& dataset = TestDataset());
  // Registers the worker and lets it join. The test fails if either call fails.
  TestWorker Add(const std::string& name, const messages::DatasetInfo& dataset = TestDataset(),
                 const std::string& certificate = "");
  // Requests work. Returns a grant, or `pending_reason` if there is no work. The test fails on
  // errors.
  GrantAnswer Ask(const TestWorker& worker,
                  const std::optional<messages::RoundReport>& report = {});
  void Heartbeat(const TestWorker& worker);
  // Advances the time by `duration`. Then the workers in `beating` send heartbeats, the servers
  // report (except that of silent_shard), and Tick() is called.
  void Pass(absl::Duration duration, const std::vector<TestWorker>& beating = {});
  // Returns a report that all samples of the grant are done. The loss is 2 per sample, and 3 per
  // held-out sample. Half of the held-out samples are predicted correctly.
  static messages::RoundReport ReportOf(const messages::Grant& grant);
  // Lets all workers request work and report it until each of them gets DONE. Returns the grants,
  // sorted by round and first sample.
  std::vector<messages::Grant> RunToEnd(const std::vector<TestWorker>& workers);

  Coordinator& coordinator() { return *coordinator_; }
  // Returns the config that the next Restart() uses.
  Coordinator::Config& config() { return config_; }
  absl::Time now() const { return now_; }

  int silent_shard = -1;

  RecordedCommands& sent();
  RecordedTasks& store();
  RecordedAnnouncements& observer();

 private:
  void Record();

  Coordinator::Config config_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  std::unique_ptr<Coordinator> coordinator_;
  RecordedCommands sent_;
  RecordedTasks store_;
  RecordedAnnouncements observer_;
};

}  // namespace lodestar::coordinator
