// A coordinator under simulated time with recorded effects, and workers that obey the protocol.
// For tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {

// What the coordinator has commanded so far: every command as one line, in the order given, and the
// commands of some kinds as they are.
struct RecordedCommands {
  std::vector<std::string> commands;
  std::vector<AssignCommand> assignments;
  std::vector<RoundPlan> plans;
  std::vector<std::string> save_directories;
  uint64_t stopped_instance = 0;  // of the last StopCommand; 0 means all
};

struct RecordedTasks {
  std::vector<CheckpointRecord> published;
  std::vector<std::string> discarded;
  std::vector<Round> set_aside;
  std::vector<MarkTask> marked;
  int restores = 0;
  bool accepts_loss = false;  // The last of them does.
};

struct RecordedAnnouncements {
  std::vector<RestoredPoint> restored;
  std::vector<JobSpec> jobs;
  std::vector<RoundSummary> rounds;
  std::vector<std::string> events;
  std::vector<std::string> alarms;
};

struct TestWorker {
  std::string name;
  uint64_t instance_id = 0;
  WorkerLife life;
  std::string certificate = "";  // empty: it comes without one
  std::optional<AcknowledgedReport> acknowledged = {};
  std::optional<absl::Duration> process_age = {};
};

// A sync job of 4 rounds of 6 samples for the mlp, unless the test changes it before Start().
Coordinator::Config TestConfig(int min_workers = 1);
DatasetInfo TestDataset();
std::string Message(const absl::Status& status);

class CoordinatorHarness {
 public:
  explicit CoordinatorHarness(Coordinator::Config config = TestConfig());

  // Attaches all shards, restores as said, loads.
  void Start(const RestoreChoice& choice = {.source = InitialSource{}, .server_incarnation = 1000});
  void AttachAll();
  void LoadAll();
  // All servers are away, and back with the memory that they had.
  void DetachAll();
  void AttachAgain();
  // The process ends, and another one goes on from its memory, at another time; all servers are
  // away. The test fails if there is none.
  void Restart();
  // Answers the newest Save of all shards, and its publication.
  void FinishSave();

  absl::StatusOr<Registration> Register(TestWorker& worker);
  absl::Status Join(const TestWorker& worker, const DatasetInfo& dataset = TestDataset());
  // Register and Join; the test fails if they do.
  TestWorker Add(const std::string& name, const DatasetInfo& dataset = TestDataset(),
                 const std::string& certificate = "");
  // The grant, or none with `pending_reason`. The test fails on errors.
  GrantAnswer Ask(const TestWorker& worker, const std::optional<RoundReport>& report = {});
  void Heartbeat(const TestWorker& worker);
  // Time passes; those named send heartbeats at its end, and all servers but one a sign of life.
  void Pass(absl::Duration duration, const std::vector<TestWorker>& beating = {});
  // A report of the whole grant: loss 2 per sample, held-out loss 3 with every second one right.
  static RoundReport ReportOf(const Grant& grant);
  // All workers ask, compute and report until no worker gets anything but DONE; returns the grants,
  // by round and first sample.
  std::vector<Grant> RunToEnd(const std::vector<TestWorker>& workers);

  Coordinator& coordinator() { return *coordinator_; }
  // What the next process is told at its start.
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

}  // namespace lodestar
