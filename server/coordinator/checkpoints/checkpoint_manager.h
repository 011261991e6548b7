// The checkpoints of a job: when one is begun, of what and where, and what follows from how it
// ends. There are those that are due or asked for, and the last save: the checkpoint at the end of
// the job, or before servers stop. The manager decides and remembers. The caller passes facts in,
// and words and carries out the verdicts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/checkpoint_record.h"
#include "server/coordinator/checkpoints/checkpoint_schedule.h"
#include "server/coordinator/checkpoints/checkpoint_tracker.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/checkpoints/last_save.h"

namespace lodestar {

// One moment of the cluster.
struct CheckpointFacts {
  LedgerState ledger;
  // The ledger before the open round was opened. Not set means that it is not known.
  std::optional<LedgerState> before_open_round = {};
  StandingOrders orders = {};
  int64_t num_open = 0;                         // rounds
  absl::Time opened_at = absl::InfinitePast();  // the newest open round
  absl::Duration usual_round = {};              // 0 means not known.
  uint64_t journal_id = 0;                      // 0 means that there is no journal.
  bool saves = false;                           // There is a folder, and what is trained is kept.
  bool is_training = false;
  bool uses_rosters = true;     // Members share rounds. Else each has rounds of its own.
  bool hands_out_work = false;  // The job goes on after the open round.
  bool is_ready = false;        // Workers may call.
  bool is_comparing = false;    // There may be later rounds than this process knows.
  bool awaits_weights = false;  // The first weights are still to come from a client.
  bool has_failed = false;
  bool is_shard_away = false;
  bool all_serving = false;         // Every server has its weights.
  bool is_shard_long_away = false;  // An operator has been told.
};

// A checkpoint that is to be begun.
struct CheckpointTry {
  LedgerState ledger;  // without rounds that are open
  LastSave::Place place = LastSave::Place::kFolder;
  bool is_early = false;  // The complete rounds are saved because the open one may never come.
  friend bool operator==(const CheckpointTry&, const CheckpointTry&) = default;
};

// What the schedule and requests come to between two rounds.
enum class DueVerdict : uint8_t {
  kLeftOut,     // The checkpoint before it is still being written.
  kServed,      // The newest checkpoint serves the requests.
  kNothingNew,  // The newest checkpoint has everything.
  kBegin,
};

// What comes next for the last save.
struct LastSaveVerdict {
  enum class Kind : uint8_t {
    kNothing,
    kServed,         // The newest checkpoint serves the requests. More may follow.
    kJobFailed,      // EndLast() follows.
    kNothingToSave,  // EndLast() follows, because there is nothing to save, or nowhere.
    kBegin,          // A try begins in `place`.
  };
  Kind kind = Kind::kNothing;
  LastSave::Place place = LastSave::Place::kFolder;
  friend bool operator==(const LastSaveVerdict&, const LastSaveVerdict&) = default;
};

// How the last save has ended without a try.
enum class LastSaveEnd : uint8_t {
  kOverBefore,  // It has been saved already.
  kUnsaved,
  kHeld,          // The newest checkpoint has everything.
  kHeldUnmarked,  // The newest checkpoint has everything, and is to be marked as complete.
};

// What follows from a checkpoint that could not be written.
enum class FailedVerdict : uint8_t {
  kOvertaken,  // The open round has come, and is saved with the complete rounds. That is no fault.
  kAlarm,      // Another try follows, or none is needed.
  kLastTry,    // EndLast() follows.
};

// What follows from the answer to a CheckpointRecord.
struct PublishedVerdict {
  enum class Kind : uint8_t {
    kOther,   // The answer is of another checkpoint.
    kFailed,  // OnFailed() follows.
    kPublished,
  };
  Kind kind = Kind::kOther;
  absl::Duration write_time = {};
  // The pause until the next one, if it is longer than asked for, because writing takes long.
  std::optional<absl::Duration> next_in = {};
  friend bool operator==(const PublishedVerdict&, const PublishedVerdict&) = default;
};

// Whether the newest checkpoint, or one that is being published, says that it has everything. That
// must be taken back before work is handed out.
enum class Reopening : uint8_t { kNone, kAwaited, kBegin };

class CheckpointManager {
 public:
  struct Config {
    int num_shards = 1;
    std::string folder;           // empty if nothing is saved
    std::string fallback_folder;  // for a last save that fails there; empty if none
    CheckpointSchedule::Config schedule;
    bool has_journal = false;  // What was acknowledged survives the end of a process.
    // Bytes of a journal beyond which a checkpoint comes out of turn. 0 means that the limit
    // follows from the weights.
    int64_t journal_limit_bytes = 0;
    bool is_site = false;  // The weights are those of other servers.
  };

  // Unless Config says otherwise. A checkpoint is three times the weights with AdamW, so that those
  // out of turn add a tenth to what the disk has to take, and a restart reads what was written in
  // seconds to a minute.
  static constexpr int64_t kJournalLimitFactor = 32;
  static constexpr int64_t kLeastJournalLimit = 1'000'000'000;
  // A journal is suggested if it takes at most this share of a round.
  static constexpr double kSmallShare = 0.01;
  // Until the disk is asked again to take back that a checkpoint has everything.
  static constexpr absl::Duration kReopenPause = absl::Seconds(1);

  // What outlives the coordinator's process.
  struct Memory {
    CheckpointTracker::Memory tracker;
    CheckpointSchedule::Memory schedule;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit CheckpointManager(Config config);
  Memory memory() const { return {tracker_.memory(), schedule_.memory()}; }
  void Resume(const Memory& memory);

  const CheckpointTracker& tracker() const { return tracker_; }
  const LastSave& last_save() const { return last_save_; }

  // Asks for a checkpoint. Returns the ticket of the one that will serve the request.
  uint64_t Request(absl::Time now) { return tracker_.Request(now); }
  // Rounds begin: all before `next_round` is on disk, or is where the job starts.
  void StartSchedule(Round next_round, absl::Time now) { schedule_.Restart(next_round, now); }
  // Returns whether OnDue() is to be called, between two rounds. In modes without rosters
  // `next_round` counts grants, of which `num_open` are out.
  bool IsDue(Round next_round, int64_t num_open, absl::Time now) const;
  // Requires: IsDue().
  DueVerdict OnDue(const CheckpointFacts& facts, absl::Time now);
  // Call while rounds are open and no further work is handed out. Returns what is to be begun
  // before they come, because the process may be killed until then. That is at most one checkpoint
  // for each open round.
  std::optional<CheckpointTry> SaveCompleteRounds(const CheckpointFacts& facts, absl::Time now);
  // Requires: none is under way. `state`: all but the ledger. Returns the temporary directory,
  // which names the checkpoint in answers. Serves all requests made so far.
  std::string Begin(const CheckpointTry& begun, CoordinatorState state, absl::Time now);

  // See CheckpointTracker::OnSaved(). `facts` as of the answer.
  std::optional<absl::StatusOr<CheckpointRecord>> OnSaved(
      int shard, absl::string_view directory, const absl::StatusOr<std::string>& manifest_part,
      const CheckpointFacts& facts);
  PublishedVerdict OnPublished(absl::string_view directory,
                               absl::StatusOr<PublishedCheckpoint> published, absl::Time now);
  // Call after kPublished. If a journal is to be suggested, returns how long it would keep a round
  // waiting, at most. `round_bytes`: contributions to a round, in fp32. `usual_round`: 0 means not
  // known.
  std::optional<absl::Duration> JournalToSuggest(double round_bytes,
                                                 absl::Duration usual_round) const;
  FailedVerdict OnFailed(absl::string_view directory, const absl::Status& error, absl::Time now);
  // Ends the requests that the checkpoint under way does not serve with this error. Returns whether
  // that checkpoint needs the shard: then GiveUp() follows.
  bool OnShardAway(const absl::Status& error);
  // Ends the checkpoint under way, if any, and all requests with this error. Returns the directory
  // that is given up. Empty means that none was under way.
  std::string GiveUp(const absl::Status& error);

  // The journal of a shard of so many bytes of weights has `bytes` since the newest checkpoint.
  // Returns the limit if it is too long and a checkpoint is to come out of turn.
  std::optional<int64_t> OnJournalSize(int shard, int64_t bytes, int64_t weights_bytes);

  // The last save. The first function begins its tries: see LastSave::Begin().
  void BeginLast(bool gives_up, absl::Time now) { last_save_.Begin(gives_up, now); }
  // A process waits for the last save. Returns false if there is no try, and no outcome either:
  // EndLast() follows.
  bool AwaitLast(const CheckpointFacts& facts, absl::Time now);
  LastSaveVerdict AdvanceLast(const CheckpointFacts& facts, absl::Time now);
  // There is no try (any more). What is on disk already is good enough if nothing came after it.
  // Otherwise the last save ends with `error`.
  LastSaveEnd EndLast(const CheckpointFacts& facts, const absl::Status& error);
  // No process waits for it any more, or the servers begin anew.
  void ForgetLast();

  // The servers begin anew from a checkpoint, which was written at `written_at` under `orders`.
  void Restart(PublishedCheckpoint checkpoint, const LedgerState& ledger,
               const StandingOrders& orders, absl::Time written_at);
  // There is no newest checkpoint: the servers begin anew from something else, or it is not good.
  void ForgetNewest() { tracker_.ForgetLast(); }

  // The newest checkpoint is marked as complete: see JournalManifest. Empty means that it is not.
  void SetComplete(absl::string_view path) { complete_ = std::string(path); }
  const std::string& complete() const { return complete_; }
  // Call before work is handed out. If the answer is kBegin, the mark of complete() is to be taken
  // back, and OnReopened() follows.
  Reopening AwaitReopening(uint64_t journal_id);
  void OnReopened(bool is_ok, absl::Time now);
  // Returns true once the pause after a failure is over.
  bool TriesReopeningAgain(absl::Time now);

 private:
  // Whether the newest checkpoint was taken in this very state.
  bool HoldsAll(const LedgerState& ledger, const StandingOrders& orders) const {
    return tracker_.HoldsLast(ledger, orders);
  }
  bool IsInFallback(absl::string_view checkpoint) const;
  bool ServeRequestsWithNewest(const CheckpointFacts& facts);
  std::optional<LedgerState> CompleteRounds(const CheckpointFacts& facts) const;
  // Whether the open round usually comes before a checkpoint would be written.
  bool IsOpenRoundSooner(const CheckpointFacts& facts, absl::Time now) const;

  const Config config_;
  CheckpointTracker tracker_;
  CheckpointSchedule schedule_;
  LastSave last_save_;
  std::optional<int64_t> saved_before_round_;  // the last open round that was saved before
  std::string early_directory_;                // of the last early one; empty if none
  // Bytes of the journals that are too long, by shard, when a checkpoint was asked for.
  std::map<int, int64_t> long_journals_;
  bool has_everything_ = false;  // the checkpoint that is being published
  std::string complete_;         // path of the newest checkpoint if it is marked as complete
  bool is_reopening_ = false;    // That is being taken back.
  std::optional<absl::Time> reopens_at_;  // the next try, after one that has failed
};

}  // namespace lodestar
