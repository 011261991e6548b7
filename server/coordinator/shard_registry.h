// Which server holds which shard, and whether it is ready. Pure data.
//
//   kMissing --Attach--> kAttached --Assigned--> kLoading --Loaded--> kServing
//      ^                     |                       |                   |
//      +------- Lose --------+-----------------------+-------------------+
//
// A server is lost if its memory is lost. A server whose connection is cut, or that is not heard
// of, is only away: it goes on where it was.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/journal_state.h"

namespace lodestar {

class ShardRegistry {
 public:
  enum class State : uint8_t { kMissing, kAttached, kLoading, kServing };
  struct Entry {
    State state = State::kMissing;
    uint64_t instance_id = 0;
    std::string address;
    absl::Time since;  // of the state
    bool is_connected = false;
    absl::Time heard_at;  // last
    // Since when the server is not connected, or silent.
    std::optional<absl::Time> away_since = std::nullopt;
    bool is_told = false;                          // people have been told that it is away
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
    uint64_t journal_end = 0;    // see Entry
    uint64_t first_segment = 0;  // see JournalPlace
    uint64_t process_id = 0;     // see JournalPlace
    friend bool operator==(const Holder&, const Holder&) = default;
  };

  ShardRegistry(int num_shards, absl::Time now);
  // These servers serve, and are away.
  ShardRegistry(const std::vector<Holder>& holders, absl::Time now);
  // Returns the holders by shard.
  std::vector<Holder> Holders() const;

  // Errors: InvalidArgument.
  absl::Status CheckFits(int shard, int num_shards) const;
  // Errors: AlreadyExists (another instance holds the shard). Requires, as all below, a shard that
  // fits.
  absl::Status Attach(int shard, uint64_t instance_id, absl::string_view address, absl::Time now);
  bool IsHeldBy(int shard, uint64_t instance_id) const;
  void Lose(int shard, absl::Time now);
  // Each returns whether the server is away from then on, or back, and was not before. Requires:
  // IsHeldBy().
  bool Disconnect(int shard, absl::Time now);
  bool Reconnect(int shard, absl::string_view address, absl::Time now);
  bool Hear(int shard, absl::Time now);
  // The server of the coordinator runs again.
  void NoteBack(absl::Time now) { back_at_ = now; }
  // Servers above shard 0 that were heard of for the last time before `silent_since` are away. The
  // shards of which this is news.
  std::vector<int> MarkSilent(absl::Time silent_since);
  // People are told that the server is away. False if they have been already.
  bool MarkTold(int shard);
  void SetJournal(int shard, JournalState journal);
  void NoteJournalEnd(int shard, uint64_t end) {
    entries_[shard].journal_end = std::max(entries_[shard].journal_end, end);
  }
  // Whether all servers keep journals and tell where these end.
  bool all_keep_journals() const {
    return std::all_of(entries_.begin(), entries_.end(),
                       [](const Entry& entry) { return entry.first_segment != 0; });
  }
  void SetProcess(int shard, const JournalPlace& journal) {
    entries_[shard].first_segment = journal.first_segment;
    entries_[shard].process_id = journal.process_id;
  }
  // Whether a server that comes back with this journal has lost a part of it. The same process has
  // not: what it says may be older than what it said last. If a server does not tell its process,
  // a connection that is open counts as that of the same process.
  bool HasLostRecords(int shard, const JournalPlace& journal) const;
  // See Coordinator::CheckNotFollowed().
  absl::Status CheckNotFollowed(int shard, uint64_t first_segment) const;
  void MarkLoading(absl::Time now);
  void MarkServing(int shard, absl::Time now);

  bool all_attached() const;  // or further
  bool all_serving() const;
  // Whatever may be away.
  bool all_loaded() const { return AllAtLeast(State::kServing); }
  bool any_away() const;
  // Away for so long that people were told.
  bool any_told() const;
  // Servers above shard 0 that hear what they are told, now or soon: not those of which people have
  // been told that they are away, nor those whose memory was lost before `lost_since`.
  std::set<int> Reachable(absl::Time lost_since) const;
  // When a server was back the last time, or that of the coordinator ran again.
  absl::Time back_at() const { return back_at_; }
  // "shard 1 (away for 3s) and ...".
  std::string Away(std::optional<absl::Time> now) const;
  // "shard 1 (missing for 3s) and shard 2 (...)": those not yet in `wanted` or further. Without
  // `now`, without the times.
  std::string Lacking(State wanted, std::optional<absl::Time> now) const;
  // "the journal of shard 1: disk full and ...": of servers that are there and can acknowledge
  // nothing. Without reasons, which may change while the trouble lasts: "the journal of shard 1
  // cannot be written". Empty means that there are none.
  std::string JournalTroubles(bool has_reasons) const;
  bool Has(int shard) const { return shard >= 0 && shard < static_cast<int>(entries_.size()); }
  const std::vector<Entry>& entries() const { return entries_; }
  static absl::string_view StateName(const Entry& entry);

 private:
  // Servers give a sign of life every second. A server that was quiet for longer than this may not
  // have run.
  static constexpr absl::Duration kQuiet = absl::Seconds(3);

  bool AllAtLeast(State wanted) const;
  // Returns whether the server was away.
  bool ComeBack(Entry& entry, absl::Time now);

  std::vector<Entry> entries_;
  absl::Time back_at_ = absl::InfinitePast();
};

}  // namespace lodestar
