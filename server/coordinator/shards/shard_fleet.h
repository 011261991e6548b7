// SPDX-License-Identifier: Apache-2.0

// Holds the state of the servers of the shards: which server has which shard, whether it is
// connected and ready, and what it knows of rounds and records. Also holds the sums over all
// servers. The fleet decides and remembers. The caller passes facts in, writes the messages and
// carries out the verdicts. Pure.
//
//   kMissing --Attach--> kAttached --MarkLoading--> kLoading --MarkServing--> kServing
//      ^                     |                          |                        |
//      +------- Lose --------+--------------------------+------------------------+
//
// A server is lost if its memory is lost. A server that is not connected or is silent is only away:
// it can continue with its memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/coordinator/shards/journal_comparison.h"
#include "server/coordinator/shards/journal_state.h"
#include "server/coordinator/shards/norm_reduction.h"
#include "server/coordinator/shards/shard_command.h"

namespace lodestar::shards {

// A server that attaches to the coordinator.
struct Attachment {
  int shard = 0;
  int num_shards = 0;  // number of shards of the cluster, as the server was told
  uint64_t instance_id = 0;
  uint64_t memory_of = 0;  // server incarnation; 0 means that the server has no memory
  absl::string_view address = {};
  JournalPlace journal = {};
};

// What the coordinator knows when a server attaches.
struct AttachFacts {
  bool has_memory = false;    // the shards have an assignment, which they can lose
  bool is_comparing = false;  // journals have not been compared yet
  bool is_resumed = false;    // the coordinator's memory was in its journal
  bool is_ready = false;      // the servers have weights
  // Address that the cluster map has for the shard. Not set means that there is no map yet.
  std::optional<absl::string_view> address_in_map = std::nullopt;
};

// Why the memory of a shard's server is lost.
struct ShardLoss {
  enum class Kind : uint8_t {
    kCutOff,            // The server had no memory: it was cut off before its assignment.
    kMissedAssignment,  // The server has missed the assignment of what to load.
    kLacksRecords,      // The server's journal lacks records that were on disk.
    kStartedAnew,       // Another process has come before there were weights.
    kLeftJournal,       // Another process has come, which does not continue from the journal.
    kLostMemory,        // Another process has come, and there was no journal.
    kCannotLoad,        // The server cannot load what it was assigned.
  };
  Kind kind = Kind::kCutOff;
  // The fields below are for kLacksRecords.
  uint64_t end = 0;            // last record in the journal
  int64_t highest_round = -1;  // see JournalPlace
  uint64_t end_before = 0;     // last record that was on disk
  friend bool operator==(const ShardLoss&, const ShardLoss&) = default;
};

// The verdict on a server that attaches.
struct AttachVerdict {
  enum class Kind : uint8_t {
    kGoesOn,       // The server still has its memory. Call ShardFleet::GoOn().
    kTakes,        // The server takes a shard that no server holds. Call ShardFleet::Attach().
    kLoses,        // The server takes the shard, and `loss` is lost. All servers start over.
    kLosesUntold,  // As kLoses, but others hear of the loss only after the comparison of journals.
    // The remaining kinds refuse the server.
    kDoesNotFit,  // The cluster has another number of shards.
    kFollowed,    // Another process continues with the server's journal.
    kLate,        // The call is old: the server has loaded other weights since it made the call.
    kHeld,        // Another server holds the shard, and is not away.
  };
  Kind kind = Kind::kTakes;
  ShardLoss loss = {};
  // The fields below are for kGoesOn.
  bool is_another_process = false;  // true: a new process continues from the journal
  bool has_moved = false;           // true: workers look for the server at another address
  friend bool operator==(const AttachVerdict&, const AttachVerdict&) = default;
};

class ShardFleet {
 public:
  enum class State : uint8_t { kMissing, kAttached, kLoading, kServing };
  struct Server {
    State state = State::kMissing;
    uint64_t instance_id = 0;
    std::string address;
    absl::Time since;  // time when `state` was reached
    bool is_connected = false;
    absl::Time heard_at;  // time of the last sign of life
    // Time since which the server is away, because it is not connected or is silent. Not set means
    // that it is not away.
    std::optional<absl::Time> away_since = std::nullopt;
    bool is_told = false;  // operators were told that the server is away
    // Time since which the server has run without a gap. Known from its signs of life.
    absl::Time runs_since = absl::InfinitePast();
    JournalState journal = {};   // from the last sign of life
    uint64_t journal_end = 0;    // highest end that was reported
    uint64_t first_segment = 0;  // see JournalPlace
    uint64_t process_id = 0;     // see JournalPlace
    bool is_away() const { return away_since.has_value(); }
    bool is_there() const { return state != State::kMissing && !is_away(); }
  };

  // A server that serves its shard.
  struct Holder {
    uint64_t instance_id = 0;
    std::string address;
    uint64_t journal_end = 0;    // see Server
    uint64_t first_segment = 0;  // see JournalPlace
    uint64_t process_id = 0;     // see JournalPlace
    friend bool operator==(const Holder&, const Holder&) = default;
  };
  // What survives the coordinator's process.
  struct Memory {
    std::vector<Holder> servers;  // by shard; all of these servers serve
    uint64_t server_incarnation = 0;
    NormReduction::Memory norms;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  // The patience is `lease`, but at least kLeastPatience. A server that is silent for longer than
  // the patience counts as away. If it then stays away for the patience, operators are told.
  ShardFleet(int num_shards, absl::Duration lease, absl::Time now);
  Memory memory() const;
  // Continues from the memory. All its servers count as serving. They are away until they attach.
  void Resume(Memory memory, absl::Time now);

  bool Has(int shard) const { return shard >= 0 && shard < static_cast<int>(servers_.size()); }
  const std::vector<Server>& servers() const { return servers_; }
  // Returns the addresses of the servers, ascending by shard.
  std::vector<std::string> addresses() const;

  // Functions for servers that attach or are lost. Functions with a parameter `shard` require
  // Has(shard), unless they say otherwise.

  // Decides what to do about a server that attaches. Changes nothing. The caller must then do the
  // following:
  // - If the shard's memory is lost, handle the loss before Attach().
  // - Handle the end of the server's former connection before GoOn().
  AttachVerdict JudgeAttach(const Attachment& attachment, const AttachFacts& facts) const;
  // Gives the shard to the server that attaches. Requires: no other server holds the shard any
  // more.
  void Attach(const Attachment& attachment, absl::Time now);
  // Lets the server continue with its memory over a new connection.
  void GoOn(const Attachment& attachment, absl::Time now);
  bool IsHeldBy(int shard, uint64_t instance_id) const;
  // Returns true if a server that attaches with these values still has its memory. It may then
  // continue, unless its journal lacks records.
  bool GoesOn(int shard, uint64_t instance_id, uint64_t memory_of, bool has_memory) const {
    return IsHeldBy(shard, instance_id) && memory_of == server_incarnation_ && has_memory;
  }
  // Returns true if another process continues with the server's journal. Its first segment is then
  // higher than `first_segment`, which the server reports. Returns false if the fleet does not have
  // the shard.
  bool IsFollowed(int shard, uint64_t first_segment) const;
  void Lose(int shard, absl::Time now);
  // Records that the memory of the shard is lost, before the journals are compared. untold_losses()
  // has the loss, because only the comparison shows what follows from it.
  void LoseUntold(int shard, const ShardLoss& loss, absl::Time now);
  const std::map<int, ShardLoss>& untold_losses() const { return untold_losses_; }
  // Records that the server is not connected. Returns true if it was not away before. Requires:
  // IsHeldBy().
  bool Disconnect(int shard, absl::Time now);
  // Records a sign of life. Returns true if the server was away and is now back.
  bool Hear(int shard, uint64_t instance_id, absl::Time now);
  // Sets back_at() to `now`, because the coordinator's own server runs again.
  void NoteBack(absl::Time now) { back_at_ = now; }
  // Marks servers as away that were silent for longer than the patience. Leaves out shard 0.
  // Returns the shards of the servers that it has marked.
  std::vector<int> MarkSilent(absl::Time now);
  // Returns the shards whose servers have been away for at least the patience.
  std::vector<int> StillAway(absl::Time now) const;
  // Records that operators are told that the server is away. Returns false if they have been told
  // already.
  bool MarkTold(int shard);

  // Functions about the loading of weights.
  void MarkLoading(absl::Time now);
  void MarkServing(int shard, absl::Time now);
  // Returns true if all servers serve and none is away. Then also records for has_loaded() that all
  // servers have loaded.
  bool FinishLoading();
  // Returns true if all servers have ever loaded in this job, even if only an earlier process of
  // the coordinator saw it.
  bool has_loaded() const { return has_loaded_; }
  // Returns true if only the server of the shard ends when it cannot load, while the job goes on.
  // Returns false at the first loading, because the operator is still there to see the error.
  // Returns false for shard 0, because its server is the coordinator's own.
  bool IsReplaceable(int shard) const { return has_loaded_ && shard > 0; }

  // Functions about the journals of the servers.
  void SetJournal(int shard, JournalState journal);
  void NoteJournalEnd(int shard, uint64_t end);
  // Returns true if all servers have journals and have reported them.
  bool all_keep_journals() const;
  // Compares what the attached servers know with the coordinator's journal. Returns what the
  // journal has lost. Not set means that nothing is lost. `next_round` is that of ResumedMemory. It
  // is not set if the coordinator does not continue from its journal.
  std::optional<JournalLoss> Compare(const JournalFacts& facts, std::optional<Round> next_round);

  // Returns the number of this incarnation of the servers. 0 means that the number is not known.
  uint64_t server_incarnation() const { return server_incarnation_; }
  // Returns true if an event of a shard is of this incarnation of the servers. Other events are
  // ignored.
  bool Counts(int shard, uint64_t server_incarnation) const {
    return server_incarnation == server_incarnation_ && Has(shard);
  }
  // Begins a new incarnation of the servers. Its number is at least `at_least`, and is above all
  // numbers that the servers, the newest checkpoint and the journal have.
  void BeginIncarnation(uint64_t at_least);
  // Forgets the incarnation, because the memory of this process is too old: all servers return to a
  // newer checkpoint.
  void ForgetIncarnation() { server_incarnation_ = 0; }

  // Functions about data of this incarnation that a server may have missed while it was not
  // connected.

  // Adds the sums of a shard. Returns the total of the round. Not set means that the sums of other
  // shards are still missing. See NormReduction.
  std::optional<double> AddSquareSums(int shard, Round round, std::vector<double> sums);
  const std::map<Round, double>& norm_totals() const { return norms_.totals(); }
  void OnPublished(PublishedCommand published) { published_ = std::move(published); }
  const std::optional<PublishedCommand>& published() const { return published_; }  // newest command
  void ForgetRounds();

  // Functions about the state of all servers together.
  bool all_attached() const { return Lacking(State::kAttached).empty(); }
  bool all_serving() const { return all_loaded() && !any_away(); }
  // Returns true if all servers have loaded, also while a server is away.
  bool all_loaded() const { return Lacking(State::kServing).empty(); }
  bool any_away() const { return !Away().empty(); }
  // Returns true if operators were told that a server is away, and it still is.
  bool any_told() const;
  // Returns the servers above shard 0 that can be expected to receive commands. Leaves out these
  // servers:
  // - servers that operators were told are away;
  // - servers whose memory was lost longer ago than the patience.
  std::set<int> Reachable(absl::Time now) const;
  // Returns the last time at which a server came back, or at which the coordinator's own server ran
  // again.
  absl::Time back_at() const { return back_at_; }
  std::vector<int> Away() const;
  // Returns the shards that have not reached the state `wanted`.
  std::vector<int> Lacking(State wanted) const;
  // Returns the shards whose servers are there, but cannot acknowledge anything because of trouble
  // with their journals.
  std::vector<int> WithJournalTrouble() const;

 private:
  // Servers give a sign of life every second. If a server is silent for longer than kQuiet, it may
  // not have run in that time.
  static constexpr absl::Duration kQuiet = absl::Seconds(3);
  // Minimum of the patience. If the lease is short, a server must not count as away because a few
  // signs of life are late or lost.
  static constexpr absl::Duration kLeastPatience = absl::Seconds(5);

  // Returns true if a server comes back with a journal that has lost records. The same process has
  // lost none: its report is only older than an earlier report. If process IDs are not known, a
  // server counts as the same process while its connection is open.
  bool HasLostRecords(int shard, const JournalPlace& journal) const;
  // Decides about a server that does not continue with its memory. `has_lost_records` means that
  // the only reason is that its journal lacks records.
  AttachVerdict JudgeNewMemory(const Attachment& attachment, const AttachFacts& facts,
                               bool has_lost_records) const;
  void NoteKnowledge(const Attachment& attachment);
  // Returns the shards whose servers satisfy `which`.
  std::vector<int> Which(absl::FunctionRef<bool(const Server&)> which) const;
  // Marks the server as not away. Returns true if it was away.
  bool ComeBack(Server& server, absl::Time now);

  absl::Duration patience_;
  std::vector<Server> servers_;
  absl::Time back_at_ = absl::InfinitePast();
  bool has_loaded_ = false;
  uint64_t server_incarnation_ = 0;
  uint64_t newest_known_incarnation_ = 0;    // as found by Compare()
  std::map<int, ShardKnowledge> knowledge_;  // of servers that have attached to this process
  std::map<int, ShardLoss> untold_losses_;
  NormReduction norms_;
  std::optional<PublishedCommand> published_;
};

// Returns the name of the server's state, such as "serving" or "away".
absl::string_view ServerStateName(const ShardFleet::Server& server);

}  // namespace lodestar::shards
