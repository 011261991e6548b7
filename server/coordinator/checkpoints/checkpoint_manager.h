// SPDX-License-Identifier: Apache-2.0

// CheckpointManager decides when a checkpoint of the job is begun, what it contains, where it is
// written, and what happens when it ends. Checkpoints are due by the schedule or requested.
// Besides, there is the last save: the checkpoint at the end of the job, or before servers stop.
// The manager decides and remembers. The caller passes facts in, writes the messages and carries
// out the verdicts.
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

namespace lodestar::checkpoints {

// The state of the cluster at one moment.
struct CheckpointFacts {
  LedgerState ledger;
  // The ledger before the open round was opened. Not set means that it is not known.
  std::optional<LedgerState> before_open_round = {};
  StandingOrders orders = {};
  int64_t num_open = 0;                         // number of open rounds
  absl::Time opened_at = absl::InfinitePast();  // when the newest open round was opened
  absl::Duration usual_round = {};              // 0 means that the usual round length is unknown.
  uint64_t journal_id = 0;                      // 0 means that there is no journal.
  // True if there is a checkpoint folder and the job is not a trial of settings, whose weights are
  // not saved.
  bool saves = false;
  bool is_training = false;
  bool uses_rosters = true;     // False if each member has rounds of its own.
  bool hands_out_work = false;  // True if the job goes on after the open round.
  bool is_ready = false;        // True if workers may call.
  bool is_comparing = false;    // True while journals are compared: later rounds may exist.
  bool awaits_weights = false;  // True until a client has sent the first weights.
  bool has_failed = false;
  bool is_shard_away = false;
  bool all_serving = false;         // True if every server has its weights.
  bool is_shard_long_away = false;  // True once operators were told of a server that is away.
};

// A checkpoint to begin.
struct CheckpointTry {
  LedgerState ledger;  // without the open rounds
  LastSave::Place place = LastSave::Place::kFolder;
  // True if only the complete rounds are saved, because the open round may never be completed.
  bool is_early = false;
  friend bool operator==(const CheckpointTry&, const CheckpointTry&) = default;
};

// What to do, between two rounds, about a checkpoint that is due or requested.
enum class DueVerdict : uint8_t {
  kLeftOut,     // The previous checkpoint is still being written. None is begun.
  kServed,      // The newest checkpoint answers the requests.
  kNothingNew,  // The newest checkpoint has the present state. None is begun.
  kBegin,
};

// What the caller must do next for the save at the job's end.
struct LastSaveVerdict {
  enum class Kind : uint8_t {
    kNothing,
    kServed,         // The newest checkpoint answers the requests. Call AdvanceLast() again.
    kJobFailed,      // The caller must call EndLast().
    kNothingToSave,  // There is nothing to save or no folder. The caller must call EndLast().
    kBegin,          // The caller must begin a try in `place`.
  };
  Kind kind = Kind::kNothing;
  LastSave::Place place = LastSave::Place::kFolder;
  friend bool operator==(const LastSaveVerdict&, const LastSaveVerdict&) = default;
};

// Result of EndLast(): how the last save has ended.
enum class LastSaveEnd : uint8_t {
  kOverBefore,  // An earlier try has succeeded.
  kUnsaved,
  kHeld,  // The newest checkpoint has the present state, and needs no mark.
  // The newest checkpoint has the present state. The caller must mark it as complete.
  kHeldUnmarked,
};

// What to do if a checkpoint could not be written.
enum class FailedVerdict : uint8_t {
  // Some server has completed the open round, so it can no longer save the state before that round.
  // The last save will have the open round, too. Nothing is wrong.
  kOvertaken,
  kAlarm,    // Raise an alarm. Another try follows, or none is needed.
  kLastTry,  // No try is left. The caller must call EndLast().
};

// What to do after an attempt to publish a checkpoint.
struct PublishedVerdict {
  enum class Kind : uint8_t {
    kOther,   // The answer belongs to another checkpoint.
    kFailed,  // The caller must call OnFailed().
    kPublished,
  };
  Kind kind = Kind::kOther;
  absl::Duration write_time = {};
  // Pause until the next checkpoint. Set only if the pause is longer than configured because
  // writing takes long.
  std::optional<absl::Duration> next_in = {};
  // Set if writing takes longer than Config::stop_write_time. Then a server that is told to stop
  // may lose its last rounds. The value is that limit, doubled as often as it stays below the time.
  std::optional<absl::Duration> outlasts_stop = {};
  // Set if checkpoints are so far apart that operators must be told. The value is kFarApart times
  // the configured interval, doubled as often as it stays below the pause.
  std::optional<absl::Duration> far_apart = {};
  friend bool operator==(const PublishedVerdict&, const PublishedVerdict&) = default;
};

// Says what must be done before work is handed out. The newest checkpoint, or the checkpoint that
// is being published, may be marked as complete. This mark must be removed first.
// - kNone: There is no mark.
// - kAwaited: There is a mark. Its removal is under way or not possible yet.
// - kBegin: There is a mark. The caller must remove it.
enum class Reopening : uint8_t { kNone, kAwaited, kBegin };

class CheckpointManager {
 public:
  struct Config {
    int num_shards = 1;
    std::string folder;  // empty means that nothing is saved
    // Folder for a last save that cannot be written to `folder`. Empty means that there is none.
    std::string fallback_folder;
    CheckpointSchedule::Config schedule;
    // True if acknowledged reports survive the end of a process.
    bool has_journal = false;
    // If a journal is longer than this number of bytes, a checkpoint is requested outside the
    // schedule. 0 means that the limit follows from the size of the weights, see
    // kJournalLimitFactor.
    int64_t journal_limit_bytes = 0;
    bool is_site = false;  // True if the weights come from upstream servers.
    // Time that a server that is told to stop has for writing the last checkpoint.
    absl::Duration stop_write_time = absl::InfiniteDuration();
  };

  // Default limit of a journal: kJournalLimitFactor times the size of its shard's weights, at least
  // kLeastJournalLimit. With AdamW, a checkpoint is three times as large as the weights. So for
  // each 32 bytes of a journal, at most three bytes of a checkpoint are written. A restart reads a
  // journal of this length in seconds to a minute.
  static constexpr int64_t kJournalLimitFactor = 32;
  static constexpr int64_t kLeastJournalLimit = 1'000'000'000;
  // A journal is suggested to operators if it makes rounds longer by at most this share.
  static constexpr double kSmallShare = 0.01;
  // If the pause between checkpoints exceeds kFarApart times the configured one, operators are
  // told. A pause of at most kNearEnough is never too long.
  static constexpr int kFarApart = 4;
  static constexpr absl::Duration kNearEnough = absl::Minutes(1);
  // Pause before the removal of a checkpoint's mark as complete is tried again.
  static constexpr absl::Duration kReopenPause = absl::Seconds(1);

  // The state that outlives the coordinator's process.
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

  // Requests a checkpoint. Returns the ticket of the checkpoint that will answer the request.
  uint64_t Request(absl::Time now) { return tracker_.Request(now); }
  // Starts the schedule when rounds begin. All rounds before `next_round` are on disk, or the job
  // starts at `next_round`.
  void StartSchedule(Round next_round, absl::Time now) { schedule_.Restart(next_round, now); }
  // Returns whether the caller must call OnDue(). Call between two rounds. In modes without
  // rosters, `next_round` is the number of all grants so far, and `num_open` is the number of
  // grants without a report.
  bool IsDue(Round next_round, int64_t num_open, absl::Time now) const;
  // Decides about the checkpoint that is due. Requires: IsDue().
  DueVerdict OnDue(const CheckpointFacts& facts, absl::Time now);
  // Returns a checkpoint of the complete rounds that the caller must begin now. It is needed
  // because the process may be killed before the open rounds are complete. Not set means that none
  // is needed. Returns at most one checkpoint for each open round. Call while rounds are open and
  // no further work is handed out.
  std::optional<CheckpointTry> SaveCompleteRounds(const CheckpointFacts& facts, absl::Time now);
  // Begins a checkpoint with the ledger of `begun` and everything else of `state`. Returns the
  // temporary directory of the checkpoint. Later calls name this directory, so that answers for
  // other checkpoints are recognized. The checkpoint answers all requests made so far. Requires: no
  // checkpoint is under way.
  std::string Begin(const CheckpointTry& begun, CoordinatorState state, absl::Time now);

  // See CheckpointTracker::OnSaved(). `facts` are those at the time of the shard's answer.
  std::optional<absl::StatusOr<CheckpointRecord>> OnSaved(
      int shard, absl::string_view directory, const absl::StatusOr<std::string>& manifest_part,
      const CheckpointFacts& facts);
  PublishedVerdict OnPublished(absl::string_view directory,
                               absl::StatusOr<PublishedCheckpoint> published, absl::Time now);
  // Decides whether operators should be told to use a journal. Call after OnPublished() has
  // returned kPublished. Returns the longest time by which a journal would delay a round. Not set
  // means that operators should not be told. `round_bytes` is the size in fp32 of all contributions
  // to a round. `usual_round` is the usual length of a round. 0 means that it is not known.
  std::optional<absl::Duration> JournalToSuggest(double round_bytes,
                                                 absl::Duration usual_round) const;
  FailedVerdict OnFailed(absl::string_view directory, const absl::Status& error, absl::Time now);
  // Must be called when the server of a shard is away. Ends requests with `error`, except those
  // that the checkpoint under way answers. Returns true if the checkpoint under way still needs the
  // shard. The caller must then call GiveUp().
  bool OnShardAway(const absl::Status& error);
  // Ends the checkpoint under way, if any, and all requests with `error`. Returns the directory of
  // that checkpoint. Empty means that no checkpoint was under way.
  std::string GiveUp(const absl::Status& error);

  // Records that the journal of `shard` has grown to `bytes` since the newest checkpoint. If the
  // journal is too long and the caller must request a checkpoint, returns the limit.
  // `weights_bytes` is the size of the shard's weights.
  std::optional<int64_t> OnJournalSize(int shard, int64_t bytes, int64_t weights_bytes);

  // Begins the tries of the last save. See LastSave::Begin().
  void BeginLast(bool gives_up, absl::Time now) { last_save_.Begin(gives_up, now); }
  // Call when a process waits for the last save. If the servers can save, begins the tries of the
  // last save and returns true. If they cannot, returns whether the last save has already ended. If
  // false is returned, the caller must call EndLast().
  bool AwaitLast(const CheckpointFacts& facts, absl::Time now);
  LastSaveVerdict AdvanceLast(const CheckpointFacts& facts, absl::Time now);
  // Ends the last save when no try is left or none is possible. If the newest checkpoint has the
  // present state, the last save succeeds with that checkpoint. Else it ends with `error`.
  LastSaveEnd EndLast(const CheckpointFacts& facts, const absl::Status& error);
  // Forgets the last save. Call if no process waits for the last save any more, or if the servers
  // begin a new incarnation.
  void ForgetLast();

  // Records that the servers begin a new incarnation from `checkpoint`, which has `ledger` and
  // `orders`. It was written at `written_at`.
  void Restart(PublishedCheckpoint checkpoint, const LedgerState& ledger,
               const StandingOrders& orders, absl::Time written_at);
  // Forgets the newest checkpoint. Call if the servers do not start from a checkpoint, or if the
  // newest checkpoint is damaged.
  void ForgetNewest() { tracker_.ForgetLast(); }

  // Records whether the newest checkpoint is marked as complete: see JournalManifest. If it is,
  // `path` is its path. Empty means that it is not marked.
  void SetComplete(absl::string_view path) { complete_ = std::string(path); }
  const std::string& complete() const { return complete_; }
  // Returns what must be done about the mark as complete before work is handed out:
  // - kNone: Nothing.
  // - kAwaited: No work may be handed out yet.
  // - kBegin: The caller must remove the mark of the checkpoint complete(), and then call
  //   OnReopened(). No work may be handed out before.
  Reopening AwaitReopening(uint64_t journal_id);
  void OnReopened(bool is_ok, absl::Time now);
  // Returns true if the removal of the mark has failed and may now be tried again. Returns true
  // only once after each failure. AwaitReopening() can then return kBegin again.
  bool TriesReopeningAgain(absl::Time now);

 private:
  // Returns whether the newest checkpoint contains exactly this state.
  bool HoldsAll(const LedgerState& ledger, const StandingOrders& orders) const {
    return tracker_.HoldsLast(ledger, orders);
  }
  bool IsInFallback(absl::string_view checkpoint) const;
  bool ServeRequestsWithNewest(const CheckpointFacts& facts);
  std::optional<LedgerState> CompleteRounds(const CheckpointFacts& facts) const;
  // Returns whether the open round will probably be completed before a checkpoint could be written.
  bool IsOpenRoundSooner(const CheckpointFacts& facts, absl::Time now) const;

  const Config config_;
  CheckpointTracker tracker_;
  CheckpointSchedule schedule_;
  LastSave last_save_;
  // The next round when SaveCompleteRounds() decided last. It decides again only when the next
  // round is another one. Not set means that it has not decided yet.
  std::optional<int64_t> saved_before_round_;
  std::string early_directory_;  // of the last early checkpoint; empty means none
  // By shard, for each journal that is too long: its bytes when a checkpoint was last requested
  // because of it.
  std::map<int, int64_t> long_journals_;
  // True if the checkpoint that is being published has everything that the servers have
  // acknowledged.
  bool has_everything_ = false;
  std::string complete_;       // path of the newest checkpoint if it is marked as complete
  bool is_reopening_ = false;  // True while the mark as complete is being removed.
  // Time when the removal of the mark is tried again after a failure. Not set means that no removal
  // has to be tried again.
  std::optional<absl::Time> reopens_at_;
};

}  // namespace lodestar::checkpoints
