// The servers of the shards: which server holds which shard, whether it is there and ready, what it
// knows of rounds and records, and what is summed over all of them. The fleet decides and
// remembers. The caller passes facts in, and words and carries out the verdicts. Pure.
//
//   kMissing --Attach--> kAttached --MarkLoading--> kLoading --MarkServing--> kServing
//      ^                     |                          |                        |
//      +------- Lose --------+--------------------------+------------------------+
//
// A server is lost if its memory is lost. A server whose connection is cut, or that is not heard
// of, is only away: it goes on where it was.
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

namespace lodestar {

// A server that attaches to the coordinator.
struct Attachment {
  int shard = 0;
  int num_shards = 0;  // that the server takes the cluster to have
  uint64_t instance_id = 0;
  uint64_t memory_of = 0;  // Server incarnation. 0 means that the server has no memory.
  absl::string_view address = {};
  JournalPlace journal = {};
};

// What the coordinator knows when a server attaches.
struct AttachFacts {
  bool has_memory = false;    // The shards have an assignment, and with it something to lose.
  bool is_comparing = false;  // Journals have not been compared yet.
  bool is_resumed = false;    // The coordinator's memory was in its journal.
  bool is_ready = false;      // The servers have weights.
  // Where workers look for the server of the shard. Not set means that they were told nothing.
  std::optional<absl::string_view> address_in_map = std::nullopt;
};

// What has become of the memory that the server of a shard had.
struct ShardLoss {
  enum class Kind : uint8_t {
    kCutOff,            // It had none: it was cut off before it was told what to load.
    kMissedAssignment,  // It has missed what it was told to load.
    kLacksRecords,      // Its journal lacks records that were on disk.
    kStartedAnew,       // Another process has come before there were weights.
    kLeftJournal,       // Another process has come, and does not go on from the journal.
    kLostMemory,        // Another process has come, and there was no journal.
    kCannotLoad,        // It cannot load what it was told to.
  };
  Kind kind = Kind::kCutOff;
  // These are of kLacksRecords.
  uint64_t end = 0;            // The last record in the journal.
  int64_t highest_round = -1;  // See JournalPlace.
  uint64_t end_before = 0;     // The last record that was on disk.
  friend bool operator==(const ShardLoss&, const ShardLoss&) = default;
};

// What follows from a server that attaches.
struct AttachVerdict {
  enum class Kind : uint8_t {
    kGoesOn,       // It has the memory that it had: see ShardFleet::GoOn().
    kTakes,        // It takes a shard that no server holds: see ShardFleet::Attach().
    kLoses,        // It takes the shard, and `loss` is lost. All start over.
    kLosesUntold,  // As kLoses, but what follows for others is known only after the comparison.
    // The server is refused.
    kDoesNotFit,  // The cluster has another number of shards.
    kFollowed,    // Another process goes on with its journal.
    kLate,        // The call is older than what its server has loaded since.
    kHeld,        // Another server holds the shard, and is not away.
  };
  Kind kind = Kind::kTakes;
  ShardLoss loss = {};
  // These are of kGoesOn.
  bool is_another_process = false;  // that has taken over what the one before has written down
  bool has_moved = false;           // It is not where workers look for it.
  friend bool operator==(const AttachVerdict&, const AttachVerdict&) = default;
};

class ShardFleet {
 public:
  enum class State : uint8_t { kMissing, kAttached, kLoading, kServing };
  struct Server {
    State state = State::kMissing;
    uint64_t instance_id = 0;
    std::string address;
    absl::Time since;  // of the state
    bool is_connected = false;
    absl::Time heard_at;  // last
    // Since when the server is not connected, or silent.
    std::optional<absl::Time> away_since = std::nullopt;
    bool is_told = false;                          // People have been told that it is away.
    absl::Time runs_since = absl::InfinitePast();  // as far as its signs of life show
    JournalState journal = {};                     // by the last of them
    uint64_t journal_end = 0;                      // the highest of all of them
    uint64_t first_segment = 0;                    // see JournalPlace
    uint64_t process_id = 0;                       // see JournalPlace
    bool is_away() const { return away_since.has_value(); }
    bool is_there() const { return state != State::kMissing && !is_away(); }
  };

  // The server of a shard that serves.
  struct Holder {
    uint64_t instance_id = 0;
    std::string address;
    uint64_t journal_end = 0;    // see Server
    uint64_t first_segment = 0;  // see JournalPlace
    uint64_t process_id = 0;     // see JournalPlace
    friend bool operator==(const Holder&, const Holder&) = default;
  };
  // What outlives the coordinator's process.
  struct Memory {
    std::vector<Holder> servers;  // by shard; all of them serve
    uint64_t server_incarnation = 0;
    NormReduction::Memory norms;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  // The patience with servers is a lease, and 5 seconds at least. So long they may be silent, and
  // so long they may be away until people are told.
  ShardFleet(int num_shards, absl::Duration lease, absl::Time now);
  Memory memory() const;
  // The servers in the memory serve, and are away.
  void Resume(Memory memory, absl::Time now);

  bool Has(int shard) const { return shard >= 0 && shard < static_cast<int>(servers_.size()); }
  const std::vector<Server>& servers() const { return servers_; }
  std::vector<std::string> addresses() const;  // by shard

  // Servers come and go. The functions with a shard require that the fleet has it.

  // Decides what follows from a server that attaches, and changes nothing. What follows from the
  // loss comes before Attach(), and what follows from the end of the former connection before
  // GoOn().
  AttachVerdict JudgeAttach(const Attachment& attachment, const AttachFacts& facts) const;
  // The server takes the shard, which no server holds any more.
  void Attach(const Attachment& attachment, absl::Time now);
  // The server goes on where it was, over another connection.
  void GoOn(const Attachment& attachment, absl::Time now);
  bool IsHeldBy(int shard, uint64_t instance_id) const;
  // Returns whether a server that attaches so has the memory that it had. If its journal lacks no
  // records, it goes on.
  bool GoesOn(int shard, uint64_t instance_id, uint64_t memory_of, bool has_memory) const {
    return IsHeldBy(shard, instance_id) && memory_of == server_incarnation_ && has_memory;
  }
  // Returns whether another process has gone on with the journal of the server since. False for a
  // shard that the fleet does not have.
  bool IsFollowed(int shard, uint64_t first_segment) const;
  void Lose(int shard, absl::Time now);
  // The same before journals are compared. What that means is said afterwards.
  void LoseUntold(int shard, const ShardLoss& loss, absl::Time now);
  const std::map<int, ShardLoss>& untold_losses() const { return untold_losses_; }
  // Returns whether the server is away from then on, and was not before. Requires: IsHeldBy().
  bool Disconnect(int shard, absl::Time now);
  // A sign of life. Returns whether the server is back, and was away before.
  bool Hear(int shard, uint64_t instance_id, absl::Time now);
  // The server of the coordinator runs again.
  void NoteBack(absl::Time now) { back_at_ = now; }
  // Servers above shard 0 that were silent for longer than the patience are away. Returns the
  // shards of which this is news.
  std::vector<int> MarkSilent(absl::Time now);
  // Returns the shards whose servers have been away for the patience.
  std::vector<int> StillAway(absl::Time now) const;
  // People are told that the server is away. Returns false if they have been already.
  bool MarkTold(int shard);

  // Loading.
  void MarkLoading(absl::Time now);
  void MarkServing(int shard, absl::Time now);
  // Returns whether all serve. If so, all have loaded.
  bool FinishLoading();
  // Returns whether all servers have loaded once, in this process or in those that it goes on from.
  bool has_loaded() const { return has_loaded_; }
  // Returns whether a server of the shard that cannot load ends alone, and not the job. The first
  // time, the operator is there. The server of shard 0 is the coordinator's own.
  bool IsReplaceable(int shard) const { return has_loaded_ && shard > 0; }

  // Journals of the servers.
  void SetJournal(int shard, JournalState journal);
  void NoteJournalEnd(int shard, uint64_t end);
  // Returns whether all servers keep journals and tell where these end.
  bool all_keep_journals() const;
  // Compares what the servers that have attached know with the coordinator's journal. Returns what
  // the journal has lost. `next_round`: see ResumedMemory. Not set means that the journal has no
  // memory.
  std::optional<JournalLoss> Compare(const JournalFacts& facts, std::optional<Round> next_round);

  // Returns the server incarnation: the number of this life of the servers. 0 means that none has
  // begun as far as this process knows.
  uint64_t server_incarnation() const { return server_incarnation_; }
  // Returns whether an event of a shard counts: it is of this life of the servers.
  bool Counts(int shard, uint64_t server_incarnation) const {
    return server_incarnation == server_incarnation_ && Has(shard);
  }
  // Another life of the servers begins. Its number is at least this, and above all numbers that the
  // servers, the newest checkpoint and the journal know of.
  void BeginIncarnation(uint64_t at_least);
  // What this process knows is older than the checkpoint that all go back to.
  void ForgetIncarnation() { server_incarnation_ = 0; }

  // What servers that were not connected may have missed, in this life of the servers.

  // Returns the total of the round once all shards have their sums in: see NormReduction.
  std::optional<double> AddSquareSums(int shard, Round round, std::vector<double> sums);
  const std::map<Round, double>& norm_totals() const { return norms_.totals(); }
  void OnPublished(PublishedCommand published) { published_ = std::move(published); }
  const std::optional<PublishedCommand>& published() const { return published_; }  // the last one
  void ForgetRounds();

  // All of them.
  bool all_attached() const { return Lacking(State::kAttached).empty(); }  // or further
  bool all_serving() const { return all_loaded() && !any_away(); }
  bool all_loaded() const { return Lacking(State::kServing).empty(); }  // whatever may be away
  bool any_away() const { return !Away().empty(); }
  bool any_told() const;  // away for so long that people were told
  // Returns the servers above shard 0 that hear what they are told, now or soon: not those of which
  // people have been told that they are away, nor those whose memory was lost longer ago than the
  // patience.
  std::set<int> Reachable(absl::Time now) const;
  // When a server was back the last time, or that of the coordinator ran again.
  absl::Time back_at() const { return back_at_; }
  std::vector<int> Away() const;
  // Returns the shards not yet in `wanted` or further.
  std::vector<int> Lacking(State wanted) const;
  // Returns the shards whose servers are there, and can acknowledge nothing for their journals.
  std::vector<int> WithJournalTrouble() const;

 private:
  // Servers give a sign of life every second. A server that was quiet for longer than this may not
  // have run.
  static constexpr absl::Duration kQuiet = absl::Seconds(3);
  // Several of these signs may be late or lost, however short the lease is.
  static constexpr absl::Duration kLeastPatience = absl::Seconds(5);

  // Returns whether a server that comes back with this journal has lost a part of it. The same
  // process has not: what it says may be older than what it said last. If a server does not tell
  // its process, a connection that is open counts as that of the same process.
  bool HasLostRecords(int shard, const JournalPlace& journal) const;
  // Decides about a server that does not go on. `has_lost_records`: it would, with its records.
  AttachVerdict JudgeNewMemory(const Attachment& attachment, const AttachFacts& facts,
                               bool has_lost_records) const;
  void NoteKnowledge(const Attachment& attachment);
  // Returns the shards of the servers of which `which` is true.
  std::vector<int> Which(absl::FunctionRef<bool(const Server&)> which) const;
  // Returns whether the server was away.
  bool ComeBack(Server& server, absl::Time now);

  absl::Duration patience_;
  std::vector<Server> servers_;
  absl::Time back_at_ = absl::InfinitePast();
  bool has_loaded_ = false;
  uint64_t server_incarnation_ = 0;
  uint64_t newest_known_incarnation_ = 0;    // by Compare()
  std::map<int, ShardKnowledge> knowledge_;  // of those that have attached to this process
  std::map<int, ShardLoss> untold_losses_;
  NormReduction norms_;
  std::optional<PublishedCommand> published_;
};

}  // namespace lodestar
